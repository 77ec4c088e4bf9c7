// What all pages share: the principal, the event stream, redrawing, and the results of actions.

import {ApiError} from "./api.js";
import {LiveStream} from "./live.js";

/** @typedef {import("./types.d.ts").Me} Me */
/** @typedef {import("./types.d.ts").Permission} Permission */
/** @typedef {import("./types.d.ts").LiveEvent} LiveEvent */

// Events redraw the page at most four times a second.
const REDRAW_MS = 250;
const TOAST_MS = 6000;

/** @type {Me | null} */
let principal = null;
/** @type {() => void} */
let redraw = () => {};
/** @type {(event: LiveEvent) => void} */
let onEvent = () => {};
let onAccessEnded = () => {};
let onRefused = () => {};
/** @type {() => Promise<void>} */
let reloadPage = async () => {};
let isScheduled = false;
let redrawTimer = 0;

/** Buttons whose action has not ended. @type {WeakSet<Element>} */
const busyButtons = new WeakSet();
/** @type {{id: number, text: string, isError: boolean}[]} */
export const toasts = [];
let lastToast = 0;

export const live = new LiveStream((event) => onEvent(event), () => update(), () => onAccessEnded(), () => onRefused());

/** @param {{redraw: () => void, onEvent: (event: LiveEvent) => void, onAccessEnded: () => void, onRefused: () => void, reload: () => Promise<void>}} driver */
export function connect(driver) {
	({redraw, onEvent, onAccessEnded, onRefused} = driver);
	reloadPage = driver.reload;
}

/** @param {Me | null} me */
export function setPrincipal(me) {
	principal = me;
}

/** @returns {Me} */
export function me() {
	if (!principal) throw new Error("not logged in");
	return principal;
}

export function isLoggedIn() {
	return principal !== null;
}

/** @param {Permission} permission */
export function may(permission) {
	return principal !== null && principal.permissions.includes(permission);
}

/** Redraw with the next frame. */
export function update() {
	if (isScheduled) return;
	isScheduled = true;
	requestAnimationFrame(() => {
		isScheduled = false;
		redraw();
	});
}

/** Redraw soon, together with other events of the moment. */
export function updateSoon() {
	if (redrawTimer) return;
	redrawTimer = setTimeout(() => {
		redrawTimer = 0;
		update();
	}, REDRAW_MS);
}

export function reload() {
	return reloadPage();
}

/**
 * @param {string} text
 * @param {boolean} [isError]
 */
export function toast(text, isError = false) {
	const id = ++lastToast;
	toasts.push({id, text, isError});
	if (toasts.length > 3) toasts.shift();
	setTimeout(() => dismiss(id), TOAST_MS);
	update();
}

/** @param {number} id */
export function dismiss(id) {
	const at = toasts.findIndex((each) => each.id === id);
	if (at >= 0) toasts.splice(at, 1);
	update();
}

/**
 * Do something that changes the server, tell how it went, and load the page again.
 * @template T
 * @param {() => Promise<T>} action
 * @param {string | ((result: T) => string)} done
 * @returns {Promise<T | undefined>}
 */
export async function perform(action, done) {
	const button = document.activeElement;
	// The second click of a double click.
	if (button && busyButtons.has(button)) return undefined;
	if (button instanceof HTMLButtonElement) busyButtons.add(button);
	try {
		return await carryOut(action, done);
	} catch (error) {
		toast(message(error), true);
		return undefined;
	} finally {
		if (button) busyButtons.delete(button);
	}
}

/**
 * As `perform`, for a dialog, which stays open with what was typed and shows the error itself.
 * @template T
 * @param {() => Promise<T>} action
 * @param {string | ((result: T) => string)} done
 * @returns {Promise<T>}
 */
export async function carryOut(action, done) {
	const result = await action();
	toast(typeof done === "string" ? done : done(result));
	await reload();
	return result;
}

/** @param {unknown} error */
export function message(error) {
	if (error instanceof ApiError && error.errors.length) return error.errors.map((each) => each.detail).join(" ");
	return error instanceof Error ? error.message : String(error);
}

/**
 * Copy text; also on plain HTTP, where browsers have no clipboard for pages.
 * @param {string} text
 */
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		const area = document.createElement("textarea");
		area.value = text;
		area.className = "unseen";
		(document.querySelector("dialog[open]") ?? document.body).append(area);
		area.select();
		document.execCommand("copy");
		area.remove();
	}
	toast("Copied.");
}
