// The one event stream of a tab: it reconnects by itself, can be paused, and knows since when the connection is lost.

import {parse} from "./json.js";
import {now, setServerTime} from "./times.js";

/** @typedef {{type: string, id: string, time: string, subject?: string, data: any}} LiveEvent */
/** @typedef {"connecting" | "live" | "paused" | "lost"} LiveState */

// Shorter interruptions are not shown.
const GRACE_MS = 3000;
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 15000;
const BACK_MS = 5000;
// The server is asked to say something this often; a hung one is noticed by its silence, because no error comes.
const PING_SECONDS = 2;
const SILENCE_MS = 6000;
const CONNECT_MS = 8000;

export class LiveStream {
	/**
	 * @param {(event: LiveEvent) => void} onEvent
	 * @param {() => void} onState
	 * @param {() => void} onAccessEnded the token or session has ended
	 * @param {() => void} onRefused the server answered with an error instead of a stream
	 */
	constructor(onEvent, onState, onAccessEnded, onRefused) {
		this.onEvent = onEvent;
		this.onState = onState;
		this.onAccessEnded = onAccessEnded;
		this.onRefused = onRefused;
		/** @type {EventSource | null} */
		this.source = null;
		this.url = "";
		this.isPaused = false;
		this.isConnected = false;
		// These times are of performance.now(): answers set the clock of the server, even to an earlier time.
		/** @type {number | null} */
		this.lostAt = null;
		this.retryAt = 0;
		/** When the server was last heard, by its clock. */
		this.lastAt = now();
		/** Without access nothing is asked. */
		this.hasAccess = true;
		this.backUntil = 0;
		this.retryMs = FIRST_RETRY_MS;
		this.timer = 0;
		this.watchdog = 0;
	}

	/** @returns {LiveState} */
	get state() {
		if (this.isPaused) return "paused";
		if (this.isConnected) return "live";
		return this.isLost ? "lost" : "connecting";
	}

	get isLost() {
		return this.lostAt !== null && performance.now() - this.lostAt >= GRACE_MS;
	}

	/** Whether the connection came back a moment ago. */
	get isBack() {
		return this.isConnected && performance.now() < this.backUntil;
	}

	/** @param {string} url what to follow; the same again changes nothing */
	follow(url) {
		if (url === this.url && this.source) return;
		this.url = url;
		if (!this.isPaused && this.hasAccess) this.connect();
	}

	/** Stop asking: the token or session has ended. */
	suspend() {
		this.hasAccess = false;
		this.close();
		this.lostAt = null;
		this.onState();
	}

	/** There is access again. */
	restore() {
		this.hasAccess = true;
		this.retryNow();
	}

	pause() {
		this.isPaused = true;
		this.close();
		this.lostAt = null;
		this.onState();
	}

	resume() {
		this.isPaused = false;
		if (this.hasAccess) this.connect();
		this.onState();
	}

	retryNow() {
		if (!this.isPaused && this.hasAccess) this.connect();
	}

	close() {
		clearTimeout(this.timer);
		clearTimeout(this.watchdog);
		this.source?.close();
		this.source = null;
		this.isConnected = false;
	}

	connect() {
		this.close();
		if (!this.url) return;
		const source = new EventSource(`${this.url}${this.url.includes("?") ? "&" : "?"}ping_seconds=${PING_SECONDS}`);
		this.source = source;
		this.expectSoon(CONNECT_MS);
		source.onopen = () => {
			this.expectSoon(SILENCE_MS);
			if (this.isLost) this.backUntil = performance.now() + BACK_MS;
			this.isConnected = true;
			this.lostAt = null;
			this.retryMs = FIRST_RETRY_MS;
			this.onState();
		};
		source.onmessage = (message) => this.receive(message);
		source.addEventListener("ping", () => this.hear());
		source.addEventListener("access_ended", () => this.onAccessEnded());
		source.onerror = () => {
			// Closed: the server has answered, with an error. Otherwise the connection failed.
			const isRefused = source.readyState === EventSource.CLOSED;
			this.lose();
			if (isRefused) this.onRefused();
		};
	}

	/** @param {number} ms after so much silence the connection is lost */
	expectSoon(ms) {
		clearTimeout(this.watchdog);
		const since = performance.now();
		this.watchdog = setTimeout(() => this.lose(since), ms);
	}

	hear() {
		this.lastAt = now();
		this.expectSoon(SILENCE_MS);
	}

	/** @param {MessageEvent<string>} message */
	receive(message) {
		/** @type {LiveEvent} */
		const event = parse(message.data);
		setServerTime(event.time);
		this.hear();
		this.onEvent(event);
	}

	/** @param {number} [since] since when nothing was heard */
	lose(since = performance.now()) {
		// The browser would try again by itself, but not after an HTTP error, and it does not say when.
		this.close();
		this.lostAt ??= since;
		this.retryAt = performance.now() + this.retryMs;
		this.timer = setTimeout(() => this.connect(), this.retryMs);
		this.retryMs = Math.min(this.retryMs * 2, MAX_RETRY_MS);
		setTimeout(() => this.onState(), GRACE_MS);
		this.onState();
	}
}
