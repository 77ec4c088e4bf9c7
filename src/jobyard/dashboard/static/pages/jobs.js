// Jobs: search, filter, page through and change them. Everything is in the address.

import {ApiError, get, path} from "../api.js";
import {may, message, reload, update} from "../app.js";
import {h} from "../dom.js";
import {added, apiFilter, apiQuery, conditions, inWords, KEYS, parseCondition, spelled, without, WITHIN_NAMES} from "../job_filter.js";
import {ACTIONS, bulk, legalActions, newJob} from "../job_actions.js";
import {jobColumns} from "../job_table.js";
import {moved} from "../keyboard.js";
import {capped, count, counted} from "../numbers.js";
import {go, link} from "../router.js";
import {clock, now} from "../times.js";
import {command, empty, onStore, stateMark, stateName, STATES, table} from "../widgets.js";

/** @typedef {import("../types.d.ts").Job} Job */
/** @typedef {import("../types.d.ts").LiveEvent} LiveEvent */
/** @typedef {import("../job_actions.js").Action} Action */

// A snapshot has fewer jobs: more ids need not be remembered.
const MAX_NEW_IDS = 1000;
const PAGE_SIZE = 50;
const VIEWS = "jobyard.views";
const MAX_SUGGESTIONS = 8;

/** The page before each page that was turned; after a reload of the browser the way back is to the first page. @type {Map<string, string>} */
const newerPages = new Map();

/** @param {URLSearchParams} params @returns {URLSearchParams} the same filter, from its first page */
function firstPage(params) {
	const made = new URLSearchParams(params);
	made.delete("page");
	return made;
}

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	let params = location.params;
	/** @type {Job[]} */
	let jobs = [];
	/** @type {string | null} */
	let nextToken = null;
	let pageToken = params.get("page") ?? "";
	/** Why the server refuses the search. */
	let refused = "";
	/** @type {{counts: Record<string, number>, cap: number, is_complete: boolean} | null} */
	let counts = null;
	/** @type {Set<string>} */
	const selected = new Set();
	let isAllSelected = false;
	let isSelecting = false;
	/** @type {string | null} */
	let at = null;
	/** Where a range begins: the row that was selected last. @type {string | null} */
	let anchor = null;
	let newJobs = 0;
	/** Those counted last. @type {Set<string>} */
	const newIds = new Set();
	let isLoaded = false;
	let loadedAt = now();
	let typed = "";
	let suggestionAt = -1;
	/** @type {Record<string, string[]>} */
	const known = {state: STATES};

	async function load() {
		const query = apiQuery(params, now());
		query.set("page_size", String(PAGE_SIZE));
		if (pageToken) query.set("page_token", pageToken);
		/** @type {{items: Job[], next_page_token?: string}} */
		let found = {items: []};
		refused = "";
		try {
			found = await get(`v1/jobs?${query}`);
		} catch (error) {
			if (!(error instanceof ApiError) || error.status !== 422) throw error;
			refused = message(error);
		}
		jobs = found.items;
		isLoaded = true;
		nextToken = found.next_page_token ?? null;
		newJobs = 0;
		newIds.clear();
		loadedAt = now();
		for (const id of selected) if (!jobs.some((job) => job.id === id)) selected.delete(id);
		if (at !== null && !jobs.some((job) => job.id === at)) at = null;
		void loadCounts();
	}

	async function refresh() {
		void loadCounts();
		if (!jobs.length) return load();
		const query = new URLSearchParams(jobs.map((job) => ["id", job.id]));
		query.set("page_size", String(PAGE_SIZE));
		/** @type {{items: Job[]}} */
		const found = await get(`v1/jobs?${query}`);
		const byId = new Map(found.items.map((job) => [job.id, job]));
		for (const id of selected) if (!byId.has(id)) selected.delete(id);
		jobs = jobs.flatMap((job) => byId.get(job.id) ?? []);
	}

	async function loadCounts() {
		const wanted = new URLSearchParams(params);
		wanted.delete("state");
		if (wanted.has("id")) return;
		try {
			counts = await get(`v1/jobs/counts?${apiQuery(wanted, now())}`);
		} catch {
			counts = null;
		}
		update();
	}

	/** @param {URLSearchParams} wanted */
	function filter(wanted) {
		typed = "";
		suggestionAt = -1;
		go(link("jobs", null, firstPage(wanted)));
	}

	/** @param {LiveEvent} event */
	function onEvent(event) {
		if (event.type === "io.jobyard.snapshot.v1" && isLoaded && !pageToken) for (const id of newIn(event.data.jobs ?? [])) countNew(id);
		const change = event.data;
		if (!change?.job_id) return false;
		const job = jobs.find((each) => each.id === change.job_id);
		if (job) {
			const isFinal = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"].includes(change.state);
			job.state = change.state ?? job.state;
			job.attempt = change.attempt || job.attempt;
			if (change.progress) job.progress = change.progress;
			if (event.type.includes(".started.")) job.started_at = event.time;
			if (isFinal) job.finished_at = event.time;
			job.reason = change.reason ?? job.reason;
		} else if (event.type.includes(".enqueued.") && !pageToken && fits(change)) countNew(change.job_id);
		return false;
	}

	/** Count a job once, although a snapshot and an event may both tell of it. @param {string} id */
	function countNew(id) {
		if (newIds.has(id)) return;
		newJobs += 1;
		newIds.add(id);
		const [oldest] = newIds;
		if (newIds.size > MAX_NEW_IDS && oldest !== undefined) newIds.delete(oldest);
	}

	/** Those of the newest jobs, which a stream begins with, that came while there was no stream. @param {Job[]} newest */
	function newIn(newest) {
		const since = jobs[0] ? Date.parse(jobs[0].created_at) : loadedAt;
		return newest.filter((job) => !jobs.some((each) => each.id === job.id) && Date.parse(job.created_at) > since && fits(job)).map((job) => job.id);
	}

	/** @param {{queue: string, group: string | null, kind: string}} change */
	function fits(change) {
		const states = params.getAll("state");
		return ["queue", "group", "kind"].every((key) => !params.has(key) || params.get(key) === change[/** @type {"queue"} */ (key)]) && (!states.length || states.includes("PENDING")) && !["text", "payload", "id", "tag", "error", "unique_key", "mine"].some((key) => params.has(key));
	}

	/** @param {Job} job */
	function matches(job) {
		const states = params.getAll("state");
		return !states.length || states.includes(job.state);
	}

	// Selection

	/** @param {string} id @param {boolean} isRange */
	function toggle(id, isRange) {
		isAllSelected = false;
		const ids = jobs.map((job) => job.id);
		if (isRange && anchor !== null && ids.includes(anchor)) {
			const [from, to] = [ids.indexOf(anchor), ids.indexOf(id)].sort((a, b) => a - b);
			for (const each of ids.slice(from, (to ?? 0) + 1)) selected.add(each);
		} else if (!selected.delete(id)) selected.add(id);
		at = anchor = id;
		update();
	}

	function clearSelection() {
		selected.clear();
		isAllSelected = isSelecting = false;
		update();
	}

	function selectedActions() {
		const chosen = jobs.filter((job) => selected.has(job.id));
		/** @type {Map<Action, string[]>} */
		const found = new Map();
		for (const job of chosen) for (const action of legalActions(job)) found.set(action, [...(found.get(action) ?? []), job.id]);
		return found;
	}

	/** The number of jobs that match the filter in the chosen states. */
	function matching() {
		const states = params.getAll("state");
		const found = (states.length ? states : STATES).map((state) => counts?.counts[state] ?? 0);
		return {number: found.reduce((a, b) => a + b, 0), isCapped: counts !== null && (!counts.is_complete || found.some((each) => each >= (counts?.cap ?? Infinity)))};
	}

	/** @param {Action} action @param {string[]} ids */
	async function act(action, ids) {
		const {number, isCapped} = matching();
		const isDone = isAllSelected
			? await bulk(action, {filter: apiFilter(params, now()), number, isCapped, words: `all ${inWords(params)}`})
			: await bulk(action, {ids, number: ids.length, words: counted(ids.length, "selected job")});
		if (isDone) clearSelection();
	}

	/** @param {"retry" | "cancel"} action */
	function actOnKey(action) {
		if (!may("operate")) return;
		const ids = selected.size ? (selectedActions().get(action) ?? []) : jobs.filter((job) => job.id === at && legalActions(job).includes(action)).map((job) => job.id);
		if (ids.length) void act(action, ids);
	}

	function bulkBar() {
		if (!selected.size) return null;
		const {number, isCapped} = matching();
		const actions = [...selectedActions()];
		return h(
			"div",
			{class: "bulk", role: "region", "aria-label": "Actions on the selection", key: "bulk"},
			h("strong", null, isAllSelected ? `All ${capped(number, isCapped)} that match` : `${count(selected.size)} selected`),
			!isAllSelected && counts && !params.has("id") && number > selected.size ? h("button", {class: "link", type: "button", onclick: () => { isAllSelected = true; update(); }}, `Select all ${capped(number, isCapped)} that match`) : null,
			h(
				"span",
				{class: "end row wrap"},
				may("operate") ? actions.map(([action, ids]) => h("button", {key: action, class: `small ${ACTIONS[action].isDangerous ? "danger" : ""}`.trim(), type: "button", onclick: () => act(action, ids)}, `${ACTIONS[action].name} ${isAllSelected ? "all" : count(ids.length)}${action === "retry" || action === "run_now" ? "" : "…"}`)) : null,
				h("button", {class: "small quiet", type: "button", onclick: clearSelection}, "Clear ", h("kbd", {class: "not-phone"}, "esc")),
			),
		);
	}

	// Query bar

	function suggestions() {
		const text = typed.trim();
		const colon = text.indexOf(":");
		if (colon < 0) return text ? KEYS.filter((key) => key.startsWith(text.toLowerCase()) && key !== text).map((key) => (key.endsWith(".") ? key : `${key}:`)) : [];
		const key = text.slice(0, colon);
		const value = text.slice(colon + 1).toLowerCase();
		return (known[key] ?? []).filter((each) => each.toLowerCase().includes(value) && each.toLowerCase() !== value).slice(0, MAX_SUGGESTIONS).map((each) => `${key}:${each}`);
	}

	/** @param {string} text */
	async function learn(text) {
		const key = text.slice(0, text.indexOf(":"));
		if (known[key] || !["queue", "kind", "group"].includes(key)) return;
		known[key] = [];
		try {
			const queue = params.get("queue");
			const url = key === "kind" ? "v1/kinds" : key === "queue" ? "v1/queues" : queue ? path`v1/queues/${queue}/groups?page_size=200` : null;
			const names = url ? (await get(url)).items.map((/** @type {{name: string | null}} */ each) => each.name) : [];
			const seen = jobs.map((job) => job[/** @type {"kind"} */ (key)]);
			known[key] = [...new Set([...names, ...seen])].filter((each) => each !== null).sort();
			update();
		} catch {
			// Suggestions are a comfort: the filter works without them.
		}
	}

	/** @param {string} text */
	function accept(text) {
		if (text.endsWith(":") || text.endsWith(".")) {
			typed = text;
			suggestionAt = -1;
			void learn(text);
			const field = document.querySelector("main [data-search]");
			if (field instanceof HTMLInputElement) { field.value = text; field.focus(); }
			return update();
		}
		const condition = parseCondition(text);
		if (condition) filter(added(params, condition));
	}

	/** @param {KeyboardEvent} event */
	function onQueryKey(event) {
		const found = suggestions();
		const field = /** @type {HTMLInputElement} */ (event.target);
		if (event.key === "ArrowDown" || event.key === "ArrowUp") {
			event.preventDefault();
			suggestionAt = found.length ? (suggestionAt + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length : -1;
		} else if (event.key === "Enter") {
			accept(found[suggestionAt] ?? typed);
			if (!typed) field.value = "";
		} else if (event.key === "Tab" && found.length && typed && !event.shiftKey) {
			event.preventDefault();
			accept(found[Math.max(0, suggestionAt)] ?? typed);
		} else if (event.key === "Backspace" && !field.value) {
			const last = conditions(params).filter(({key}) => key !== "state" && key !== "within").at(-1);
			if (last) filter(without(params, last));
		} else if (event.key === "Escape") {
			typed = field.value = "";
			field.blur();
		} else return;
		update();
	}

	function queryBar() {
		const chips = conditions(params).filter(({key}) => key !== "state" && key !== "within");
		const found = suggestions();
		return h(
			"div",
			{class: "row wrap query-row", key: "query"},
			h(
				"div",
				{class: "query", role: "search"},
				chips.map((condition) => h("span", {class: "chip", key: spelled(condition)}, h("span", null, spelled(condition)), h("button", {type: "button", "aria-label": `Remove ${spelled(condition)}`, onclick: () => filter(without(params, condition))}, "×"))),
				h("input", {
					key: "field", "data-search": "", "aria-label": "Add a filter", placeholder: chips.length ? "Add a filter" : "queue:  group:  kind:  tag:  id:  payload.path:value  or text", value: typed, spellcheck: "false", autocomplete: "off",
					role: "combobox", "aria-expanded": String(found.length > 0), "aria-controls": "suggestions", "aria-activedescendant": suggestionAt >= 0 ? `suggestion-${suggestionAt}` : undefined,
					oninput: (/** @type {InputEvent} */ event) => { typed = /** @type {HTMLInputElement} */ (event.target).value; suggestionAt = -1; void learn(typed); update(); },
					onkeydown: onQueryKey,
				}),
				found.length ? h("ul", {key: "suggestions", id: "suggestions", class: "suggestions menu", role: "listbox", "aria-label": "Suggestions"}, found.map((text, i) => h("li", {key: text, id: `suggestion-${i}`, role: "option", "aria-selected": String(i === suggestionAt), onpointerdown: (/** @type {Event} */ event) => { event.preventDefault(); accept(text); }}, text))) : null,
			),
			h("select", {"aria-label": "Created", key: "within", value: params.get("within") ?? "", onchange: (/** @type {Event} */ event) => { const value = /** @type {HTMLSelectElement} */ (event.target).value; filter(value ? added(params, {key: "within", value}) : without(params, {key: "within", value: params.get("within") ?? ""})); }}, Object.entries(WITHIN_NAMES).map(([value, name]) => h("option", {value}, `Created: ${name}`))),
			savedViews(),
			may("submit") ? h("button", {key: "new", class: "primary not-phone", type: "button", onclick: () => newJob(null, {kind: params.get("kind"), queue: params.get("queue"), group: params.get("group")})}, "New job") : null,
		);
	}

	function savedViews() {
		/** @type {Record<string, string>} */
		const views = JSON.parse(localStorage.getItem(VIEWS) ?? "{}");
		const here = firstPage(params).toString();
		const name = Object.keys(views).find((each) => views[each] === here);
		const onchange = (/** @type {Event} */ event) => {
			const field = /** @type {HTMLSelectElement} */ (event.target);
			const chosen = field.value;
			if (chosen === "+") views[inWords(params)] = here;
			else if (chosen === "-" && name) delete views[name];
			else if (views[chosen] !== undefined) filter(new URLSearchParams(views[chosen]));
			localStorage.setItem(VIEWS, JSON.stringify(views));
			field.value = "";
			update();
		};
		return h("select", {key: "views", class: "views not-phone", "aria-label": "Saved views", value: "", onchange}, h("option", {value: ""}, name ? "Saved view" : "Views"), Object.keys(views).map((each) => h("option", {value: each}, each)), name ? h("option", {value: "-"}, "Forget this view") : here ? h("option", {value: "+"}, "Save this view") : null);
	}

	function tabs() {
		const states = params.getAll("state");
		const tab = (/** @type {string | null} */ state) => {
			const wanted = firstPage(params);
			wanted.delete("state");
			if (state) wanted.set("state", state);
			const number = state ? counts?.counts[state] : undefined;
			const isCurrent = state ? states.length === 1 && states[0] === state : !states.length;
			return h("a", {key: state ?? "all", href: link("jobs", null, wanted), "aria-current": isCurrent ? "true" : undefined}, state ? [stateMark(state, ""), stateName(state)] : "All", number === undefined ? null : h("span", {class: "count"}, capped(number, number >= (counts?.cap ?? Infinity) || !counts?.is_complete)));
		};
		return h("nav", {class: "tabs", "aria-label": "State"}, tab(null), STATES.map(tab));
	}

	/** @returns {import("../widgets.js").Column<Job>} */
	function selectColumn() {
		return {
			title: h("input", {type: "checkbox", "aria-label": "Select this page", checked: selected.size === jobs.length, onchange: () => { if (selected.size === jobs.length) clearSelection(); else for (const job of jobs) selected.add(job.id); update(); }}),
			class: "checkbox",
			phone: "check",
			cell: (job) => h("input", {type: "checkbox", "aria-label": `Select ${job.kind} ${job.id.slice(-6)}`, checked: selected.has(job.id), onclick: (/** @type {MouseEvent} */ event) => toggle(job.id, event.shiftKey)}),
		};
	}

	function body() {
		if (jobs.length) {
			return table({
				label: "Jobs", rows: jobs, key: (job) => job.id, class: isSelecting ? "selecting" : "",
				rowClass: (job) => `${selected.has(job.id) || isAllSelected ? "selected" : ""} ${job.id === at ? "current" : ""} ${matches(job) ? "" : "gone"}`.trim(),
				rowProps: (job) => ({"data-id": job.id}),
				columns: [
					...(may("operate") ? [selectColumn()] : []),
					...jobColumns(params),
				],
			});
		}
		if (refused) return empty("The server refuses this search.", h("p", {role: "alert"}, refused), h("a", {class: "link", href: link("jobs")}, "Clear filters"));
		if (nextToken) return empty("None of the newest jobs match.", h("button", {type: "button", onclick: older}, "Search further"));
		if (conditions(params).length) return empty(`No ${inWords(params)}.`, h("a", {class: "link", href: link("jobs")}, "Clear filters"));
		return empty("No jobs yet.", "They appear here as soon as they are submitted:", command(onStore("jobyard enqueue KIND --payload '{}'")));
	}

	function older() {
		if (!nextToken) return;
		newerPages.set(nextToken, pageToken);
		turn(nextToken);
	}

	function newer() {
		turn(newerPages.get(pageToken) ?? "");
	}

	/** @param {string} token of a page; empty: the first one */
	function turn(token) {
		const wanted = firstPage(params);
		if (token) wanted.set("page", token);
		go(link("jobs", null, wanted));
	}

	return {
		title: () => [["Jobs"]],
		stream: `?${["enqueued", "started", "progress", "completed", "failed", "retrying", "cancelled"].map((type) => `type=${type}`).join("&")}`,
		// Rows never move by themselves: only what is on screen is read again.
		load: () => (isLoaded ? refresh() : load()),
		onEvent,
		onParams(wanted) {
			const isTurned = pageToken !== (wanted.get("page") ?? "");
			params = wanted;
			pageToken = wanted.get("page") ?? "";
			counts = null;
			clearSelection();
			const shown = () => { if (isTurned) scrollTo(0, 0); update(); };
			// Asked again by the driver, which shows why it failed.
			void load().then(shown, () => { isLoaded = false; return reload(); });
			return true;
		},
		onKey(event) {
			const ids = jobs.map((job) => job.id);
			if (event.key === "j" || event.key === "k") {
				at = moved(ids, at, event);
				update();
				requestAnimationFrame(() => document.querySelector("tr.current")?.scrollIntoView({block: "nearest"}));
			} else if (event.key.toLowerCase() === "x" && at && may("operate")) toggle(at, event.shiftKey);
			else if ((event.key === "o" || event.key === "Enter") && at) go(link("jobs", at));
			else if (event.key === "r") actOnKey("retry");
			else if (event.key === "c") actOnKey("cancel");
			else if (event.key === "Escape" && selected.size) clearSelection();
			else return false;
			return true;
		},
		view: () => [
			queryBar(),
			h("section", {class: "card", key: "jobs"}, h("header", null, tabs(), h("small", {class: "end not-phone"}, "Newest first"), may("operate") && h("button", {class: "small only-phone-inline end", type: "button", onclick: () => { isSelecting = !isSelecting; if (!isSelecting) selected.clear(); update(); }}, isSelecting ? "Done" : "Select")), bulkBar(), body()),
			h(
				"div",
				{class: "row wrap", key: "pages"},
				h("div", {class: "hints not-phone"}, [["j", "k", "move"], ["o", "open"], ...(may("operate") ? [["x", "select"], ["r", "retry"], ["c", "cancel"]] : []), ["/", "search"], ["?", "all keys"]].map((each) => h("span", null, each.slice(0, -1).map((key) => h("kbd", null, key)), each.at(-1)))),
				h(
					"span",
					{class: "end row"},
					newJobs ? [h("small", null, `${count(newJobs)} new since ${clock(loadedAt)}`), h("button", {class: "small", type: "button", onclick: () => { selected.clear(); void load().then(update); }}, "Show them")] : null,
					h("button", {class: "small", type: "button", disabled: !pageToken, onclick: newer}, pageToken && !newerPages.has(pageToken) ? "Newest" : "Newer"),
					h("button", {class: "small", type: "button", disabled: !nextToken, onclick: older}, "Older"),
				),
			),
		],
	};
}
