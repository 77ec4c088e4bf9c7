// Start: log in, open the page of the address, keep it live.

import {ApiError, get, whenUnauthorized} from "./api.js";
import {connect, isLoggedIn, live, may, me, update, updateSoon} from "./app.js";
import {h, render} from "./dom.js";
import {applyTheme, listenToKeys} from "./keyboard.js";
import {identify, loginDialog, loginPage} from "./login.js";
import {ENTRIES, isOpenToMe, myEntries, seesPartsOnly} from "./navigation.js";
import {forbiddenPage, noSuchPage, notFoundPage} from "./no_page.js";
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
// The server counts at most this often.
const COUNTED_MS = 600;
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
		// The server has seen whether there is a cookie: without one the answer would be 401, an error in the console.
		if (document.documentElement.dataset.session === "none") await loginPage();
		await identify();
	} catch (error) {
		if (!(error instanceof ApiError) || error.status !== 401) return fail(error);
		await loginPage();
		await identify();
	}
	whenUnauthorized(askAgain);
	connect({redraw: draw, onEvent, onAccessEnded: askAgain, onRefused: () => void identify().catch(() => undefined), reload: reloadAfterChange});
	listenToKeys(onKey);
	// One timer for all ages.
	setInterval(tick, 1000);
	setInterval(() => { if (!document.hidden && !live.isPaused && live.hasAccess) void loadTotals(); }, TOTALS_MS);
	document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
	start((location) => void open(location));
	void loadTotals();
	// So that each page opens while the server is away.
	requestIdleCallback(() => { for (const each of myEntries()) void Promise.all([each.load(), each.loadOne?.()]).catch(() => undefined); });
}

/** The token or session has ended: nothing is asked until there is a new one. */
function askAgain() {
	live.suspend();
	loginDialog(() => void identify().then(() => { live.restore(); return reload(); }, fail));
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
	const isStart = location.page === "overview" && location.name === null;
	const entry = ENTRIES.find((each) => each.id === location.page);
	const isAllowed = entry !== undefined && isOpenToMe(entry);
	// The first page is one that the principal may see; any other address is told what is wrong with it.
	const wanted = isStart && !isAllowed ? myEntries()[0] : entry;
	const isSame = page !== null && address.page === (wanted?.id ?? location.page) && address.name === location.name;
	if (isSame && page?.onParams?.(location.params)) return update();
	const number = ++opened;
	page?.close?.();
	closeMenus();
	page = null;
	address = {page: wanted?.id ?? location.page, name: location.name};
	isLoaded = isSlow = false;
	failure = null;
	if (!wanted || (location.name !== null && !wanted.loadOne)) return show(noSuchPage(location));
	if (!isOpenToMe(wanted)) return show(forbiddenPage(wanted));
	setTimeout(() => { if (number === opened && !isLoaded) { isSlow = true; update(); } }, SKELETON_MS);
	/** @type {import("./navigation.js").PageModule} */
	let module;
	try {
		module = await (location.name !== null && wanted.loadOne ? wanted.loadOne() : wanted.load());
	} catch {
		if (number !== opened) return;
		failure = new ApiError(0, {title: "The page could not be loaded", detail: "The server does not answer. The page opens by itself once it does."}, "");
		// Its snapshot opens the page.
		if (!live.url) live.follow(`v1/events${QUIET_EVENTS}`);
		return update();
	}
	if (number !== opened) return;
	isLoading = false;
	page = module.open(location);
	// A single thing may not exist, and then has no stream.
	if (location.name === null) follow(page);
	await reload();
	if (number !== opened) return;
	if (location.name !== null && failure instanceof ApiError && failure.status === 404 && !isLoaded) {
		page.close?.();
		failure = null;
		show(notFoundPage(wanted, location.name));
	} else if (location.name !== null) follow(page);
	document.getElementById("main")?.focus({preventScroll: true});
	scrollTo(0, 0);
}

/** @param {Page | null} shown */
function follow(shown) {
	live.follow(`v1/events${shown?.stream ?? QUIET_EVENTS}`);
}

/** A page without data. @param {Page} shown */
function show(shown) {
	page = shown;
	isLoaded = true;
	isLoading = false;
	if (may("read")) follow(null);
	update();
}

async function reload() {
	const current = page;
	if (!current || !live.hasAccess) return;
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

/** After a change that was made here: also the counts of the menu. */
async function reloadAfterChange() {
	setTimeout(() => void loadTotals(), COUNTED_MS);
	await reload();
}

/** The script of the page could not be loaded. Browsers remember that until the whole page is loaded again. */
async function loadAgain() {
	try {
		await identify();
	} catch (error) {
		failure = error;
		return update();
	}
	location.reload();
}

function reloadSoon() {
	if (reloadTimer || live.isPaused) return;
	reloadTimer = setTimeout(() => {
		reloadTimer = 0;
		if (!live.isPaused) void reload();
	}, Math.max(0, RELOAD_MS - (performance.now() - lastLoad)));
}

/** @param {LiveEvent} event */
function onEvent(event) {
	const isNews = event.type === "io.jobyard.snapshot.v1" || event.type === "io.jobyard.resync.v1";
	if (event.type === "io.jobyard.stats.v1") takeTotals(event.data);
	// Not without a loss before it: a page whose script always fails must not be loaded for ever.
	if (!page && failure && live.isBack) return void loadAgain();
	if (page?.onEvent?.(event) || (page && isNews)) reloadSoon();
	updateSoon();
}

async function loadTotals() {
	// A token of some groups or kinds must not see the numbers of whole queues.
	if (!may("watch") || seesPartsOnly() || !live.hasAccess) return;
	try {
		/** @type {Overview} */
		const found = await get("v1/overview");
		takeTotals(found);
		counts.queues = found.queues.length + (found.queues_left_out ?? 0);
		counts.workflows = found.workflows;
		counts.runners = found.runners ?? undefined;
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
		error.status === 404 ? h("a", {class: "link end", href: link(address.page)}, "Back to the list") : h("button", {class: "small end", type: "button", onclick: () => void (page ? reload() : loadAgain())}, "Try again"),
	);
}

void begin();
