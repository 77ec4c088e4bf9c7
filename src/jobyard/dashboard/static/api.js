// Requests to the API of this server, and its problem documents as errors.

import {parse, stringify} from "./json.js";
import {setServerTime} from "./times.js";

export class ApiError extends Error {
	/**
	 * @param {number} status 0: the server did not answer
	 * @param {{title?: string, detail?: string, code?: string, errors?: {pointer: string, detail: string}[]}} problem
	 * @param {string} requestId
	 */
	constructor(status, problem, requestId) {
		super(problem.detail || problem.title || `HTTP ${status}`);
		this.status = status;
		this.title = problem.title || "Error";
		this.code = problem.code || "";
		this.errors = problem.errors ?? [];
		this.requestId = requestId;
	}
}

// A server that hangs must not keep a page waiting for ever.
const DEADLINE_MS = 20_000;

let csrfToken = "";
// Counts the logins: an answer to a request of an earlier session says nothing about this one.
let session = 0;
// After a logout, requests of the page that is still shown would be refused, and browsers write that to the console.
const loggedOut = new AbortController();
/** The response to such a request. @type {Promise<never>} */
const NEVER = new Promise(() => {});
/** @type {() => void} */
let onUnauthorized = () => {};

/** @param {string} token */
export function setCsrfToken(token) {
	csrfToken = token;
}

/** @param {() => void} listener called when the session is over */
export function whenUnauthorized(listener) {
	onUnauthorized = listener;
}

export function beginSession() {
	session += 1;
}

/** End the session on the server. The page asks nothing from here on, and must be loaded again. */
export async function endSession() {
	loggedOut.abort();
	await transmit("POST", "logout", undefined, AbortSignal.timeout(DEADLINE_MS));
}

/**
 * A path of the API, relative to the page, so that a path prefix of a proxy is kept.
 * @param {TemplateStringsArray} strings
 * @param {...(string | number | null)} names
 */
export function path(strings, ...names) {
	return strings.reduce((made, text, i) => made + text + (i < names.length ? encodeURIComponent(String(names[i])) : ""), "");
}

/** @param {Record<string, string | number | boolean | null | undefined | readonly string[]>} params */
export function query(params) {
	const found = new URLSearchParams();
	for (const [name, value] of Object.entries(params)) {
		if (value === null || value === undefined || value === "") continue;
		for (const each of Array.isArray(value) ? value : [value]) found.append(name, String(each));
	}
	const text = found.toString();
	return text ? `?${text}` : "";
}

/**
 * A request with a deadline.
 * @param {string} method
 * @param {string} url
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function request(method, url, body, signal) {
	const started = session;
	const deadline = AbortSignal.timeout(DEADLINE_MS);
	const response = await send(method, url, body, signal ? AbortSignal.any([signal, deadline]) : deadline);
	const text = await response.text().catch((error) => { if (loggedOut.signal.aborted) return NEVER; throw unanswered(error, method); });
	const date = response.headers.get("date");
	// The header has whole seconds: half a second is added on average.
	if (date) setServerTime(new Date(Date.parse(date) + 500).toISOString());
	if (response.ok) return text && (response.headers.get("content-type") ?? "").includes("json") ? parse(text) : text;
	throw failure(response, text, started);
}

/**
 * @param {string} method
 * @param {string} url
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 */
export async function send(method, url, body, signal) {
	try {
		return await transmit(method, url, body, signal ? AbortSignal.any([signal, loggedOut.signal]) : loggedOut.signal);
	} catch (error) {
		return loggedOut.signal.aborted ? NEVER : Promise.reject(error);
	}
}

/**
 * @param {string} method
 * @param {string} url
 * @param {unknown} body
 * @param {AbortSignal} signal
 */
async function transmit(method, url, body, signal) {
	/** @type {Record<string, string>} */
	const headers = {};
	if (method !== "GET" && csrfToken) headers["X-CSRF-Token"] = csrfToken;
	if (body !== undefined) headers["Content-Type"] = "application/json";
	const init = {method, headers, signal, body: body === undefined ? undefined : stringify(body), credentials: /** @type {const} */ ("same-origin")};
	try {
		return await fetch(url, init);
	} catch (error) {
		throw unanswered(error, method);
	}
}

/**
 * What to tell of a request that has no complete answer.
 * @param {unknown} error
 * @param {string} method
 */
function unanswered(error, method) {
	if (error instanceof DOMException && error.name === "AbortError") return error;
	const isLate = error instanceof DOMException && error.name === "TimeoutError";
	const cause = isLate ? `It has not answered within ${DEADLINE_MS / 1000} s.` : "It is down, or the connection is lost.";
	const next = method === "GET" ? "Try again in a moment." : "It may have made the change: look before you try again.";
	return new ApiError(0, {title: "The server does not answer", detail: `${cause} ${next}`}, "");
}

/** The title of an error whose body has none, in the words of the other routes. @param {number} status */
function titleOf(status) {
	return {403: "Forbidden", 404: "Not found", 409: "Conflict"}[status] ?? `HTTP ${status}`;
}

/**
 * @param {Response} response
 * @param {string} text
 * @param {number} [started] the session of the request
 */
export function failure(response, text, started = session) {
	let problem = {};
	try {
		const found = parse(text);
		// Routes under /api/v2 wrap their errors.
		problem = found.error ? {...found.error, title: titleOf(response.status), detail: found.error.message} : found;
	} catch {
		problem = {title: titleOf(response.status)};
	}
	const error = new ApiError(response.status, problem, response.headers.get("request-id") ?? "");
	if (response.status === 401 && started === session) onUnauthorized();
	return error;
}

/** @param {string} url @param {AbortSignal} [signal] @returns {Promise<any>} */
export const get = (url, signal) => request("GET", url, undefined, signal);
/** @param {string} url @param {unknown} [body] @returns {Promise<any>} */
export const post = (url, body) => request("POST", url, body);
