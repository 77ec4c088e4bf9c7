// The filter of the jobs page: the same conditions as chips, in the address, as parameters of the API, and in words.

import {STATES, stateName} from "./widgets.js";

/** @typedef {{key: string, value: string}} Condition */

/** Conditions that may be given once, and those that may be repeated. */
const SINGLE = ["queue", "group", "kind", "tag", "unique_key", "text", "error", "within", "mine"];
const REPEATED = ["id", "state", "payload"];
/** @type {Record<string, number>} */
export const WITHIN = {"15m": 900, "1h": 3600, "24h": 86400, "7d": 604800};
export const WITHIN_NAMES = {"": "any time", "15m": "last 15 min", "1h": "last hour", "24h": "last 24 h", "7d": "last 7 days"};
/** What can be typed before a colon. */
export const KEYS = ["queue", "group", "kind", "state", "tag", "id", "unique_key", "payload."];

/** @param {URLSearchParams} params @returns {Condition[]} */
export function conditions(params) {
	/** @type {Condition[]} */
	const found = [];
	for (const key of [...SINGLE, ...REPEATED]) for (const value of params.getAll(key)) found.push({key, value});
	return found;
}

/** @param {Condition} condition as it is typed */
export function spelled({key, value}) {
	if (key === "text") return value;
	return key === "payload" ? `payload.${value}` : `${key}:${value}`;
}

/** @param {string} typed @returns {Condition | null} */
export function parseCondition(typed) {
	const text = typed.trim();
	if (!text) return null;
	const at = text.indexOf(":");
	const key = text.slice(0, at).toLowerCase();
	const value = text.slice(at + 1).trim();
	if (at > 0 && value) {
		if (text.startsWith("payload.")) return {key: "payload", value: text.slice("payload.".length)};
		if (key === "state") return {key, value: STATES.find((each) => each.startsWith(value.toUpperCase())) ?? value.toUpperCase()};
		if (SINGLE.includes(key) || REPEATED.includes(key)) return {key, value};
	}
	return {key: "text", value: text};
}

/**
 * The parameters with one more condition.
 * @param {URLSearchParams} params
 * @param {Condition} condition
 */
export function added(params, {key, value}) {
	const made = new URLSearchParams(params);
	if (REPEATED.includes(key)) {
		if (!made.getAll(key).includes(value)) made.append(key, value);
	} else made.set(key, value);
	return made;
}

/** @param {URLSearchParams} params @param {Condition} condition */
export function without(params, {key, value}) {
	const made = new URLSearchParams(params);
	const kept = made.getAll(key).filter((each) => each !== value);
	made.delete(key);
	for (const each of kept) made.append(key, each);
	return made;
}

/**
 * As parameters of GET /v1/jobs.
 * @param {URLSearchParams} params
 * @param {number} now
 */
export function apiQuery(params, now) {
	const made = new URLSearchParams();
	for (const {key, value} of conditions(params)) {
		if (key === "within") made.set("created_after", new Date(now - (WITHIN[value] ?? 0) * 1000).toISOString());
		else made.append(key, value);
	}
	return made;
}

/**
 * As the filter of a bulk operation.
 * @param {URLSearchParams} params
 * @param {number} now
 * @returns {Record<string, unknown>}
 */
export function apiFilter(params, now) {
	/** @type {Record<string, any>} */
	const made = {};
	for (const [key, value] of apiQuery(params, now)) {
		if (REPEATED.includes(key)) (made[key] ??= []).push(value);
		else made[key] = key === "mine" ? value === "true" : value;
	}
	return made;
}

/** @param {URLSearchParams} params */
export function inWords(params) {
	const states = params.getAll("state").map(stateName).join(" or ").toLowerCase();
	const rest = conditions(params).filter(({key}) => key !== "state" && key !== "within").map(spelled).join(" and ");
	const within = params.get("within");
	return ["jobs", states && `that are ${states}`, rest && `with ${rest}`, within && `of the ${WITHIN_NAMES[/** @type {keyof typeof WITHIN_NAMES} */ (within)] ?? within}`].filter(Boolean).join(" ");
}
