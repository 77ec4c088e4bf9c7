// What stands around every page: sidebar, top bar, banner and messages.

import {dismiss, live, me, toasts, update} from "./app.js";
import {h} from "./dom.js";
import {icon} from "./icons.js";
import {showKeys, toggleTheme} from "./keyboard.js";
import {logOut} from "./login.js";
import {myEntries} from "./navigation.js";
import {count, span} from "./numbers.js";
import {openPalette} from "./palette.js";
import {link} from "./router.js";
import {clock, nextTimeMode, timeModeName, zoneName} from "./times.js";

/** @typedef {import("./types.d.ts").Content} Content */

const STORES = /** @type {Record<string, string>} */ ({sqlite: "SQLite", postgres: "PostgreSQL", postgresql: "PostgreSQL", redis: "Redis", rediss: "Redis", memory: "Memory", mysql: "MySQL"});

/** Counts beside the names of the pages. @type {Record<string, number | undefined>} */
export const counts = {};
/** What the counts count, for one and for many. @type {Record<string, [string, string]>} */
const COUNTED = {queues: ["queue", "queues"], "dead-letters": ["dead letter", "dead letters"], schedules: ["schedule", "schedules"], workflows: ["workflow: files and functions", "workflows: files and functions"], runners: ["running GitHub runner", "running GitHub runners"], workers: ["live worker", "live workers"]};
/** Milliseconds that the server took for the last answer. */
export const answered = {ms: 0};

let isMenuOpen = false;
let isMoreOpen = false;

/** @param {string} page the open page */
export function sidebar(page) {
	const entries = myEntries();
	const about = me();
	const store = about.store ? (STORES[about.store.split(/[:+]/)[0] ?? ""] ?? "") : "";
	return h(
		"nav",
		{class: `sidebar ${isMoreOpen ? "more-open" : ""}`.trim(), "aria-label": "Main", key: "sidebar"},
		h("a", {class: "brand", href: link("overview")}, icon("brand"), "jobyard", about.environment ? h("span", {class: "environment", title: about.environment}, about.environment) : null),
		h(
			"ul",
			{class: "menu"},
			entries.map((entry) =>
				h(
					"li",
					{key: entry.id, class: `${entry.onPhone ? "on-phone" : ""} ${entry.isApart ? "apart" : ""}`.trim() || undefined},
					h(
						"a",
						{href: link(entry.id), title: badgeWords(entry.id), "aria-current": entry.id === page ? "page" : undefined, onclick: closeMore},
						icon(entry.icon),
						entry.name,
						badge(entry.id),
					),
				),
			),
			h("li", {key: "more", class: "on-phone only-phone"}, h("a", {href: "#more", role: "button", "aria-expanded": String(isMoreOpen), onclick: toggleMore}, icon("more"), "More")),
		),
		h("div", {class: "about"}, h("span", {title: about.store}, [store, answered.ms ? `${answered.ms} ms` : ""].filter(Boolean).join(" · ")), h("span", null, `jobyard ${about.version ?? ""}`)),
	);
}

/** @param {string} page */
function badge(page) {
	const number = counts[page];
	if (number === undefined) return null;
	return h("span", {class: `count ${page === "dead-letters" && number ? "red" : ""}`.trim()}, count(number));
}

/** What the badge of a page counts. @param {string} page */
function badgeWords(page) {
	const number = counts[page];
	const words = COUNTED[page];
	return number === undefined || !words ? undefined : `${count(number)} ${words[number === 1 ? 0 : 1]}`;
}

/** @param {Event} event */
function toggleMore(event) {
	event.preventDefault();
	isMoreOpen = !isMoreOpen;
	update();
}

function closeMore() {
	isMoreOpen = false;
	update();
}

/** @param {[string, string?][]} title the last part is the page itself */
export function topbar(title) {
	const state = live.state;
	const words = {live: "Live", paused: "Paused", lost: "Offline", connecting: "Live"};
	const toggle = () => (live.isPaused ? live.resume() : live.pause());
	return h(
		"header",
		{class: "topbar", key: "topbar"},
		h("h1", null, title.map(([text, href]) => (href ? [h("a", {href}, `${text} /`), " "] : text))),
		h("button", {class: "search-button", type: "button", onclick: openPalette}, icon("search"), h("span", null, "Search or jump to"), h("kbd", {"aria-hidden": "true"}, /Mac|iPhone/.test(navigator.platform) ? "⌘K" : "Ctrl K")),
		h("button", {class: `quiet live-button ${state}`, type: "button", "aria-pressed": String(!live.isPaused), title: "Pause or resume live updates (p)", onclick: toggle}, words[state]),
		h("button", {class: "quiet not-phone", type: "button", title: "Show times as UTC, local or relative (t)", onclick: switchTimes}, timeModeName()),
		h("button", {class: "quiet square", type: "button", "aria-label": "Light or dark", title: "Light or dark", onclick: toggleTheme}, icon("theme")),
		userMenu(),
	);
}

export function switchTimes() {
	nextTimeMode();
	update();
}

function userMenu() {
	const {name, role} = me();
	const initials = name.split(/[^\p{L}\p{N}]+/u).filter(Boolean).map((word) => [...word][0]).slice(0, 2).join("").toUpperCase() || "?";
	return h(
		"div",
		{class: "user-menu", onfocusout: leaveMenu},
		h("button", {class: "user-button", type: "button", "aria-label": `${name}, ${role}`, "aria-expanded": String(isMenuOpen), onclick: () => { isMenuOpen = !isMenuOpen; update(); }}, initials),
		isMenuOpen
			? h("div", null, h("strong", null, name), h("small", null, `Role: ${role}`), h("button", {type: "button", class: "quiet only-phone", onclick: switchTimes}, `Times: ${timeModeName()}`), h("button", {type: "button", class: "quiet", onclick: showKeys}, "Keyboard shortcuts"), h("a", {class: "link", href: "docs"}, "API documentation"), h("button", {type: "button", onclick: logOut}, "Log out"))
			: null,
	);
}

/** @param {FocusEvent} event */
function leaveMenu(event) {
	const menu = /** @type {HTMLElement} */ (event.currentTarget);
	if (!(event.relatedTarget instanceof Node) || menu?.contains(event.relatedTarget)) return;
	isMenuOpen = false;
	update();
}

export function closeMenus() {
	isMenuOpen = isMoreOpen = false;
	update();
}

/** @returns {Content} */
export function banner() {
	if (live.isLost && !live.isPaused) {
		const since = span((performance.now() - (live.lostAt ?? 0)) / 1000);
		const wait = Math.max(0, Math.round((live.retryAt - performance.now()) / 1000));
		return h(
			"div",
			{class: "banner", role: "status", key: "banner"},
			h("span", null, `Connection lost ${since} ago. Numbers are from ${clock(live.lastAt)} ${zoneName()}. ${wait ? `Next try in ${wait} s.` : "Trying now."}`),
			h("button", {class: "small end", type: "button", onclick: () => live.retryNow()}, "Try now"),
		);
	}
	return live.isBack ? h("div", {class: "banner back", role: "status", key: "banner"}, "Live again.") : null;
}

export function messages() {
	return h(
		"div",
		{class: "toasts", role: "status", key: "toasts"},
		toasts.map((each) => h("div", {class: "toast", key: each.id}, h("span", null, each.text), h("button", {class: "small quiet", type: "button", onclick: () => dismiss(each.id)}, "Close"))),
	);
}
