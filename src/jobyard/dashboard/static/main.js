// Start: log in, open the page of the address, keep it live.

import {ApiError, get, whenUnauthorized} from "./api.js";
import {connect, isLoggedIn, live, may, update, updateSoon} from "./app.js";
import {h, render} from "./dom.js";
import {applyTheme, listenToKeys} from "./keyboard.js";
import {identify, loginDialog, loginPage} from "./login.js";
import {ENTRIES} from "./navigation.js";
import {link, start} from "./router.js";
import {answered, banner, closeMenus, counts, messages, sidebar, topbar} from "./shell.js";

/** @typedef {import("./types.d.ts").Page} Page */
/** @typedef {import("./types.d.ts").Content} Content */
/** @typedef {import("./types.d.ts").LiveEvent} LiveEvent */
/** @typedef {import("./types.d.ts").Overview} Overview */
/** @typedef {import("./router.js").Location} Location */

// A faster page shows nothing in between.
const SKELETON_MS = 150;
// Events cause at most one request in this time.
const RELOAD_MS = 1000;
const TOTALS_MS = 15000;
// What no event tells of, such as the heartbeats of workers, is read again after this many seconds.
const REFRESH_SECONDS = 10;
const QUIET_EVENTS = "?type=queue&type=stats";

/** @type {Page | null} */
let page = null;
let address = {page: "", name: /** @type {string | null} */ (null)};
let isLoaded = false;
let isSlow = false;
/** @type {unknown} */
let failure = null;
let isLoading = false;
let isDirty = false;
let lastLoad = 0;
let reloadTimer = 0;
// Counts the opened pages, so that an answer for an earlier one is dropped.
let opened = 0;

// Apart from the dialogs, which are children of the body.
const root = document.createElement("div");
root.id = "app";
document.body.append(root);

async function begin() {
	applyTheme();
	try {
		await identify();
	} catch (error) {
		if (!(error instanceof ApiError) || error.status !== 401) return fail(error);
		await loginPage();
		await identify();
	}
	whenUnauthorized(() => loginDialog(() => void identify().then(() => { live.retryNow(); return reload(); })));
	connect({redraw: draw, onEvent, reload});
	listenToKeys(onKey);
	// One timer for all ages.
	setInterval(tick, 1000);
	setInterval(() => { if (!document.hidden && !live.isPaused) void loadTotals(); }, TOTALS_MS);
	document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
	start((location) => void open(location));
	void loadTotals();
}

function tick() {
	if (document.hidden) return;
	const isDue = page !== null && isLoaded && live.isConnected && performance.now() - lastLoad > (page.refreshSeconds ?? REFRESH_SECONDS) * 1000;
	if (isDue && !isLoading) void reload();
	update();
}

/** @param {unknown} error */
function fail(error) {
	render(root, h("main", {class: "card login"}, h("h1", null, "jobyard"), h("p", {role: "alert"}, error instanceof Error ? error.message : String(error)), h("button", {class: "primary", type: "button", onclick: () => location.reload()}, "Try again")));
}

/** @param {Location} location */
async function open(location) {
	if (!isLoggedIn()) return;
	const entry = ENTRIES.find((each) => each.id === location.page) ?? ENTRIES[0];
	const wanted = entry && may(entry.needs) ? entry : ENTRIES.find((each) => may(each.needs));
	if (!wanted) return;
	const isSame = page !== null && address.page === wanted.id && address.name === location.name;
	if (isSame && page?.onParams?.(location.params)) return update();
	const number = ++opened;
	page?.close?.();
	closeMenus();
	page = null;
	address = {page: wanted.id, name: location.name};
	isLoaded = isSlow = false;
	failure = null;
	setTimeout(() => { if (number === opened && !isLoaded) { isSlow = true; update(); } }, SKELETON_MS);
	const module = await (location.name !== null && wanted.loadOne ? wanted.loadOne() : wanted.load());
	if (number !== opened) return;
	page = module.open(location);
	live.follow(`v1/events${page.stream ?? QUIET_EVENTS}`);
	isLoading = false;
	await reload();
	document.getElementById("main")?.focus({preventScroll: true});
	scrollTo(0, 0);
}

async function reload() {
	const current = page;
	if (!current) return;
	if (isLoading) {
		isDirty = true;
		return;
	}
	isLoading = true;
	isDirty = false;
	clearTimeout(reloadTimer);
	reloadTimer = 0;
	const startedAt = performance.now();
	try {
		await current.load();
		if (current !== page) return;
		answered.ms = Math.max(1, Math.round(performance.now() - startedAt));
		failure = null;
		isLoaded = true;
	} catch (error) {
		if (current !== page) return;
		failure = error;
	} finally {
		if (current === page) {
			isLoading = false;
			lastLoad = performance.now();
		}
	}
	update();
	if (isDirty) reloadSoon();
}

function reloadSoon() {
	if (reloadTimer || live.isPaused) return;
	reloadTimer = setTimeout(() => {
		reloadTimer = 0;
		void reload();
	}, Math.max(0, RELOAD_MS - (performance.now() - lastLoad)));
}

/** @param {LiveEvent} event */
function onEvent(event) {
	const isNews = event.type === "io.jobyard.snapshot.v1" || event.type === "io.jobyard.resync.v1";
	if (event.type === "io.jobyard.stats.v1") takeTotals(event.data);
	if (page?.onEvent?.(event) || isNews) reloadSoon();
	updateSoon();
}

async function loadTotals() {
	if (!may("watch")) return;
	try {
		/** @type {Overview} */
		const found = await get("v1/overview");
		takeTotals(found);
		counts.queues = found.queues.length + (found.queues_left_out ?? 0);
		counts.schedules = (await get("v1/schedules?page_size=1000")).items.length;
		update();
	} catch {
		// The page itself tells what is wrong.
	}
}

/** @param {Overview} totals */
function takeTotals(totals) {
	counts["dead-letters"] = totals.failed;
	counts.workers = totals.workers.live;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
	if (event.key === "Escape") closeMenus();
	return page?.onKey?.(event) ?? false;
}

function draw() {
	const title = page?.title() ?? [[ENTRIES.find((each) => each.id === address.page)?.name ?? ""]];
	document.title = `${title.at(-1)?.[0] ?? ""} · jobyard`;
	render(
		root,
		h("a", {class: "skip", href: "#main", key: "skip", onclick: skip}, "Skip to content"),
		sidebar(address.page),
		topbar(/** @type {[string, string?][]} */ (title)),
		h("main", {id: "main", key: `main-${opened}`, tabindex: "-1"}, banner(), problem(), content()),
		messages(),
	);
}

/** @param {Event} event */
function skip(event) {
	event.preventDefault();
	document.getElementById("main")?.focus();
}

/** @returns {Content} */
function content() {
	if (page && isLoaded) return page.view();
	if (failure || !isSlow) return null;
	return h("section", {class: "card", key: "skeleton", "aria-busy": "true", "aria-label": "Loading"}, h("div", {class: "skeleton"}, Array.from({length: 9}, () => h("span", null))));
}

/** @returns {Content} */
function problem() {
	if (!failure) return null;
	const error = failure instanceof ApiError ? failure : new ApiError(0, {title: "The page failed", detail: String(failure)}, "");
	if (!(failure instanceof ApiError)) console.error(failure);
	// The banner of the lost connection says it already.
	if (error.status === 0 && isLoaded && !live.isConnected && !live.isPaused) return null;
	const role = error.status === 403 ? " Ask an administrator for a token with another role or scope." : "";
	return h(
		"div",
		{class: "banner problem", role: "alert", key: "problem"},
		h("div", null, h("strong", null, error.title), h("p", null, error.message + role), h("small", null, [error.code && `Code ${error.code}`, error.requestId && `request ${error.requestId}`].filter(Boolean).join(", "))),
		error.status === 404 ? h("a", {class: "link end", href: link(address.page)}, "Back to the list") : h("button", {class: "small end", type: "button", onclick: () => void reload()}, "Try again"),
	);
}

void begin();
