// Instants: as UTC, local or relative time, by the choice of the reader, and the clock of the server.

import {pad, span} from "./numbers.js";

/** @typedef {"utc" | "local" | "relative"} TimeMode */

const MODES = /** @type {TimeMode[]} */ (["relative", "utc", "local"]);
const KEY = "jobyard.times";
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const DAYS = "Sun Mon Tue Wed Thu Fri Sat".split(" ");

let offset = 0;
/** @type {TimeMode} */
let mode = MODES.find((each) => each === localStorage.getItem(KEY)) ?? "relative";

/**
 * Ages are measured by the clock of the server: that of the browser may be wrong.
 * @param {string} time
 */
export function setServerTime(time) {
	const at = Date.parse(time);
	if (!Number.isNaN(at)) offset = at - Date.now();
}

export function now() {
	return Date.now() + offset;
}

export function timeMode() {
	return mode;
}

export function timeModeName() {
	return {utc: "UTC", local: "Local", relative: "Relative"}[mode];
}

export function nextTimeMode() {
	mode = /** @type {TimeMode} */ (MODES[(MODES.indexOf(mode) + 1) % MODES.length]);
	localStorage.setItem(KEY, mode);
}

/**
 * Seconds since an instant; negative if it is to come.
 * @param {string} time
 */
export function age(time) {
	return (now() - Date.parse(time)) / 1000;
}

/**
 * An instant as the reader wants it: "8 s ago", "in 5m 02s", "17:53:48", "12 Nov 17:53".
 * @param {string | null | undefined} time
 */
export function when(time) {
	if (!time) return "–";
	if (mode !== "relative") return stamp(time);
	const seconds = age(time);
	if (seconds <= -1) return `in ${coarse(-seconds)}`;
	return seconds < 1 ? "now" : `${coarse(seconds)} ago`;
}

/** @param {number} seconds */
function coarse(seconds) {
	if (seconds < 60) return `${Math.floor(seconds)} s`;
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
	if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
	return `${Math.floor(seconds / 86400)} days`;
}

/**
 * How long until an instant: "in 6m 12s".
 * @param {string} time
 */
export function until(time) {
	const seconds = -age(time);
	return seconds < 0.5 ? "now" : `in ${span(seconds)}`;
}

/** @param {Date} date @param {boolean} isLocal */
function parts(date, isLocal) {
	return isLocal
		? {year: date.getFullYear(), month: date.getMonth(), day: date.getDate(), weekday: date.getDay(), hour: date.getHours(), minute: date.getMinutes(), second: date.getSeconds(), ms: date.getMilliseconds()}
		: {year: date.getUTCFullYear(), month: date.getUTCMonth(), day: date.getUTCDate(), weekday: date.getUTCDay(), hour: date.getUTCHours(), minute: date.getUTCMinutes(), second: date.getUTCSeconds(), ms: date.getUTCMilliseconds()};
}

/** @param {string | number} time */
export function clock(time) {
	const at = parts(new Date(time), mode === "local");
	return `${pad(at.hour)}:${pad(at.minute)}:${pad(at.second)}`;
}

/** @param {string | number} time */
export function shortClock(time) {
	return clock(time).slice(0, 5);
}

/** @param {string} time */
export function preciseClock(time) {
	const at = parts(new Date(time), mode === "local");
	return `${clock(time)}.${String(at.ms).padStart(3, "0")}`;
}

export function zoneName() {
	return mode === "local" ? "local time" : "UTC";
}

/**
 * Date and time; the date is left out for today.
 * @param {string} time
 */
export function stamp(time) {
	const isLocal = mode === "local";
	const at = parts(new Date(time), isLocal);
	const today = parts(new Date(now()), isLocal);
	if (at.year === today.year && at.month === today.month && at.day === today.day) return clock(time);
	const year = at.year === today.year ? "" : ` ${at.year}`;
	return `${at.day} ${MONTHS[at.month]}${year} ${pad(at.hour)}:${pad(at.minute)}`;
}

/**
 * The full instant, for tooltips.
 * @param {string | null | undefined} time
 */
export function fullTime(time) {
	return time ? `${time.replace("T", " ").replace("Z", "")} UTC` : "";
}

/**
 * Day and wall time in a zone: {day: "Tue 17 Nov", time: "09:00"}.
 * @param {string} time
 * @param {string} zone
 */
export function inZone(time, zone) {
	try {
		const format = new Intl.DateTimeFormat("en-GB", {timeZone: zone, weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
		const found = Object.fromEntries(format.formatToParts(new Date(time)).map((part) => [part.type, part.value]));
		const seconds = found.second === "00" ? "" : `:${found.second}`;
		return {day: `${found.weekday} ${found.day} ${found.month}`, time: `${found.hour}:${found.minute}${seconds}`};
	} catch {
		// A zone that this browser does not know.
		const at = parts(new Date(time), false);
		return {day: `${DAYS[at.weekday]} ${at.day} ${MONTHS[at.month]}`, time: `${pad(at.hour)}:${pad(at.minute)} UTC`};
	}
}
