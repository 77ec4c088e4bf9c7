// JSON for reading: coloured, exact integers, hidden values marked, and large values cut.

import {may} from "./app.js";
import {h} from "./dom.js";

/** @typedef {import("./types.d.ts").Content} Content */

// How names end whose values are hidden until a press of a button. The server sends the rule; before that, all are.
let secretName = /$/;
const HIDDEN = "•••••• hidden";
const MAX_LINES = 400;
const MAX_TEXT = 4000;

/** @param {string} pattern */
export function setSecretNames(pattern) {
	secretName = new RegExp(pattern, "i");
}

/** @param {unknown} value @param {boolean} [isRevealed] */
export function jsonView(value, isRevealed = false) {
	const budget = {lines: MAX_LINES, isRevealed};
	return h("pre", {class: "block json", tabindex: "0", role: "group", "aria-label": "JSON"}, lines(value, "", budget), budget.lines <= 0 ? h("span", {class: "faint"}, "\n… copy it to see the rest") : null);
}

/** @param {string} name @param {unknown} value */
export function isSecret(name, value) {
	return secretName.test(name) && value !== null && typeof value !== "boolean";
}

/** @param {unknown} value @returns {boolean} */
export function hasSecrets(value) {
	if (value === null || typeof value !== "object") return false;
	return Object.entries(value).some(([key, each]) => (!Array.isArray(value) && isSecret(key, each)) || hasSecrets(each));
}

/**
 * A button that shows the hidden values, for those who may see them.
 * @param {unknown} value
 * @param {boolean} isRevealed
 * @param {() => void} onclick
 */
export function revealButton(value, isRevealed, onclick) {
	return may("reveal") && hasSecrets(value) ? h("button", {class: "small quiet", type: "button", "aria-pressed": String(isRevealed), onclick}, isRevealed ? "Hide secrets" : "Show secrets") : null;
}

/**
 * A field for a payload. One with secrets is first hidden, and is kept as it is if it is never shown.
 * @param {{rows: number, isShown: boolean, show: (event: any) => void, value: string, oninput: (event: any) => void, isInvalid?: boolean}} options
 */
export function payloadField({rows, isShown, show, value, oninput, isInvalid = false}) {
	if (isShown) return h("label", {key: "payload"}, "Payload", h("textarea", {rows, spellcheck: "false", value, oninput, "aria-invalid": String(isInvalid)}));
	return h("div", {key: "hidden-payload", class: "row wrap"}, h("span", {class: "faint"}, "The payload has hidden values and stays as it is."), h("button", {class: "small", type: "button", onclick: show}, "Show and change it"));
}

/** The value with hidden parts, for copying. @param {unknown} value @returns {unknown} */
export function withoutSecrets(value) {
	if (Array.isArray(value)) return value.map(withoutSecrets);
	if (value === null || typeof value !== "object") return value;
	return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, isSecret(key, each) ? HIDDEN : withoutSecrets(each)]));
}

/**
 * @param {unknown} value
 * @param {string} indent
 * @param {{lines: number, isRevealed: boolean}} budget
 * @returns {Content}
 */
function lines(value, indent, budget) {
	budget.lines -= 1;
	if (budget.lines <= 0) return null;
	if (value === null || typeof value !== "object") return scalar(value);
	const isList = Array.isArray(value);
	const entries = Object.entries(value);
	if (!entries.length) return isList ? "[]" : "{}";
	const inner = `${indent}  `;
	return [
		isList ? "[" : "{",
		entries.map(([key, each], i) => budget.lines <= 0 ? null : ["\n", inner, isList ? null : [h("span", {class: "key"}, JSON.stringify(key)), ": "], !isList && !budget.isRevealed && isSecret(key, each) ? h("span", {class: "faint"}, HIDDEN) : lines(each, inner, budget), i < entries.length - 1 ? "," : ""]),
		"\n",
		indent,
		isList ? "]" : "}",
	];
}

/** @param {unknown} value */
function scalar(value) {
	if (typeof value === "string") return value.length > MAX_TEXT ? `${JSON.stringify(value.slice(0, MAX_TEXT))}…` : JSON.stringify(value);
	return h("span", {class: "literal"}, String(value));
}
