// The one event stream of a tab: it reconnects by itself, can be paused, and tells since when it is lost.

import {parse} from "./json.js";
import {now, setServerTime} from "./times.js";

/** @typedef {{type: string, id: string, time: string, subject?: string, data: any}} LiveEvent */
/** @typedef {"connecting" | "live" | "paused" | "lost"} LiveState */

// Shorter interruptions are not shown.
const GRACE_MS = 3000;
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 15000;
const BACK_MS = 5000;

export class LiveStream {
	/**
	 * @param {(event: LiveEvent) => void} onEvent
	 * @param {() => void} onState
	 */
	constructor(onEvent, onState) {
		this.onEvent = onEvent;
		this.onState = onState;
		/** @type {EventSource | null} */
		this.source = null;
		this.url = "";
		this.isPaused = false;
		this.isConnected = false;
		/** @type {number | null} */
		this.lostAt = null;
		/** @type {number} */
		this.retryAt = 0;
		/** When the last event came, by the clock of the server. */
		this.lastAt = now();
		this.backUntil = 0;
		this.retryMs = FIRST_RETRY_MS;
		this.timer = 0;
	}

	/** @returns {LiveState} */
	get state() {
		if (this.isPaused) return "paused";
		if (this.isConnected) return "live";
		return this.isLost ? "lost" : "connecting";
	}

	get isLost() {
		return this.lostAt !== null && now() - this.lostAt >= GRACE_MS;
	}

	/** Whether the connection came back a moment ago. */
	get isBack() {
		return this.isConnected && now() < this.backUntil;
	}

	/** @param {string} url what to follow; the same again changes nothing */
	follow(url) {
		if (url === this.url && this.source) return;
		this.url = url;
		if (!this.isPaused) this.connect();
	}

	pause() {
		this.isPaused = true;
		this.close();
		this.lostAt = null;
		this.onState();
	}

	resume() {
		this.isPaused = false;
		this.connect();
		this.onState();
	}

	retryNow() {
		if (!this.isPaused) this.connect();
	}

	close() {
		clearTimeout(this.timer);
		this.source?.close();
		this.source = null;
		this.isConnected = false;
	}

	connect() {
		this.close();
		if (!this.url) return;
		const source = new EventSource(this.url);
		this.source = source;
		source.onopen = () => {
			if (this.isLost) this.backUntil = now() + BACK_MS;
			this.isConnected = true;
			this.lostAt = null;
			this.retryMs = FIRST_RETRY_MS;
			this.onState();
		};
		source.onmessage = (message) => this.receive(message);
		source.onerror = () => this.lose();
	}

	/** @param {MessageEvent<string>} message */
	receive(message) {
		/** @type {LiveEvent} */
		const event = parse(message.data);
		setServerTime(event.time);
		this.lastAt = Date.parse(event.time);
		this.onEvent(event);
	}

	lose() {
		// The browser would try again by itself, but not after an HTTP error, and it does not say when.
		this.close();
		this.lostAt ??= now();
		this.retryAt = now() + this.retryMs;
		this.timer = setTimeout(() => this.connect(), this.retryMs);
		this.retryMs = Math.min(this.retryMs * 2, MAX_RETRY_MS);
		setTimeout(() => this.onState(), GRACE_MS);
		this.onState();
	}
}
