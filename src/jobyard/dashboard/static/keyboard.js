// Keyboard shortcuts of all pages; off while a field has the focus.

import {live, may, update} from "./app.js";
import {show} from "./dialogs.js";
import {h} from "./dom.js";
import {ENTRIES, myEntries} from "./navigation.js";
import {openPalette} from "./palette.js";
import {go, link} from "./router.js";
import {nextTimeMode} from "./times.js";

const THEME = "jobyard.theme";
const GO_MS = 1500;
let wasG = 0;

/** @type {[string[], string][]} */
const KEYS = [
	[["Ctrl K", "⌘K"], "search or jump to a page, a queue or a job"],
	[["/"], "search on this page"],
	...ENTRIES.filter((each) => each.key).map((each) => /** @type {[string[], string]} */ ([["g", each.key ?? ""], `go to ${each.name}`])),
	[["j", "k"], "next and previous row of a list"],
	[["x"], "select the row; with Shift, the rows up to it"],
	[["o", "Enter"], "open the row"],
	[["r"], "retry the job or the selection"],
	[["c"], "cancel the job or the selection"],
	[["p"], "pause or resume live updates"],
	[["t"], "times as UTC, local or relative"],
	[["Esc"], "close, or clear the selection"],
	[["?"], "this list"],
];

export function showKeys() {
	show("Keyboard shortcuts", () => h("dl", {class: "keys"}, KEYS.map(([keys, text]) => [h("dt", null, keys.map((key) => h("kbd", null, key))), h("dd", null, text)])));
}

export function applyTheme() {
	const chosen = localStorage.getItem(THEME);
	if (chosen) document.documentElement.dataset.theme = chosen;
}

export function toggleTheme() {
	const isDark = getComputedStyle(document.documentElement).colorScheme === "dark" || (document.documentElement.dataset.theme === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
	document.documentElement.dataset.theme = isDark ? "light" : "dark";
	localStorage.setItem(THEME, isDark ? "light" : "dark");
}

/** @param {(event: KeyboardEvent) => boolean} onPageKey whether the page used the key */
export function listenToKeys(onPageKey) {
	addEventListener("keydown", (event) => {
		if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
			event.preventDefault();
			openPalette();
			return;
		}
		const target = /** @type {Element} */ (event.target);
		if (event.metaKey || event.ctrlKey || event.altKey) return;
		if (target.closest("input:not([type='checkbox']), textarea, select, dialog, [contenteditable]")) return;
		if (event.key === "Enter" && target.closest("a, button, summary")) return;
		if (general(event) || onPageKey(event) || moveFocus(event)) event.preventDefault();
	});
}

/** @param {KeyboardEvent} event */
function general(event) {
	if (Date.now() - wasG < GO_MS) {
		wasG = 0;
		const entry = myEntries().find((each) => each.key === event.key);
		if (entry) go(link(entry.id));
		return entry !== undefined;
	}
	if (event.key === "g") wasG = Date.now();
	else if (event.key === "p") live.isPaused ? live.resume() : live.pause();
	else if (event.key === "t") nextTimeMode();
	else if (event.key === "?") showKeys();
	else if (event.key === "/") {
		const field = document.querySelector("main [data-search]");
		if (field instanceof HTMLElement) field.focus();
		else openPalette();
	} else return false;
	update();
	return true;
}

/**
 * In lists without a selection, j and k move the focus through the links of the rows, and o opens one.
 * @param {KeyboardEvent} event
 */
function moveFocus(event) {
	const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a.name, button.name") ?? row.querySelector("a, button")).filter((each) => each !== null));
	const row = document.activeElement?.closest("tbody tr");
	const at = links.findIndex((each) => row?.contains(each));
	if (event.key === "o" && at >= 0) links[at]?.click();
	else if (event.key === "j" || event.key === "k") links[Math.min(links.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))]?.focus();
	else return false;
	return true;
}

/**
 * Move through rows with j and k.
 * @param {string[]} ids
 * @param {string | null} at
 * @param {KeyboardEvent} event
 * @returns {string | null} the new row
 */
export function moved(ids, at, event) {
	const step = event.key === "j" ? 1 : -1;
	const from = at === null ? (step > 0 ? -1 : ids.length) : ids.indexOf(at);
	return ids[Math.min(ids.length - 1, Math.max(0, from + step))] ?? null;
}
