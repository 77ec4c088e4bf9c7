// One queue: its numbers, the line of groups, the groups, and its limits.

import {get, path, post, request} from "../api.js";
import {may, perform, toast, update} from "../app.js";
import {ask} from "../dialogs.js";
import {h} from "../dom.js";
import {editNumber} from "../edit_number.js";
import {icon} from "../icons.js";
import {LineOfGroups} from "../line.js";
import {allWaiting, count, counted, dueWords, duration, span} from "../numbers.js";
import {STATUS, statusClass} from "../queue_table.js";
import {link} from "../router.js";
import {command, empty, limitBar, moment, numberStrip, onStore, table} from "../widgets.js";
import {changeWords} from "../audit_words.js";

/** @typedef {import("../types.d.ts").Queue} Queue */
/** @typedef {import("../types.d.ts").QueueRow} QueueRow */
/** @typedef {import("../types.d.ts").Line} Line */
/** @typedef {import("../types.d.ts").LineGroup} LineGroup */
/** @typedef {import("../types.d.ts").Overview} Overview */
/** @typedef {import("../types.d.ts").Worker} Worker */
/** @typedef {import("../audit_words.js").AuditEntry} AuditEntry */
/** @typedef {keyof import("../types.d.ts").QueueSettings} Setting */

const MAX_GROUPS = 100;
/** @type {[Setting, string][]} */
const LIMITS = [["max_running", "Running"], ["max_per_group", "Running per group"], ["max_waiting", "Waiting"], ["max_waiting_per_group", "Waiting per group"]];

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	const name = location.name ?? "";
	/** @type {Queue | null} */
	let queue = null;
	/** @type {QueueRow | undefined} */
	let row;
	/** @type {Line | null} */
	let line = null;
	/** @type {LineGroup[]} */
	let idle = [];
	/** @type {Worker[]} */
	let workers = [];
	/** @type {AuditEntry[]} */
	let changes = [];
	let find = "";
	const picture = new LineOfGroups();

	async function load() {
		const canSeeChanges = may("administer");
		const [found, totals, waiting, groups, allWorkers, audit] = await Promise.all([
			get(path`v1/queues/${name}`),
			get("v1/overview"),
			get(path`v1/queues/${name}/line?limit=${MAX_GROUPS}`),
			get(path`v1/queues/${name}/groups?page_size=${MAX_GROUPS}`),
			get("v1/workers"),
			canSeeChanges ? get(path`v1/audit?newest=true&page_size=6&target=${name}`).catch(() => ({items: []})) : {items: []},
		]);
		queue = found;
		row = /** @type {Overview} */ (totals).queues.find((each) => each.name === name);
		line = /** @type {Line} */ (waiting);
		picture.show(line);
		const inLine = new Set(line.groups.map((each) => each.name));
		idle = groups.items.filter((/** @type {LineGroup} */ each) => !inLine.has(each.name)).map((/** @type {LineGroup} */ each) => ({...each, turn: null, status: "idle", limit_origin: each.limit === null ? (each.effective_limit === null ? "none" : "queue") : "own", sentence: each.paused ? "Paused: nothing starts." : "Nothing waits."}));
		workers = allWorkers.items.filter((/** @type {Worker} */ each) => !each.is_lost && (each.queues.length === 0 || each.queues.includes(name)));
		changes = audit.items;
	}

	/** @param {Queue} of */
	function drain(of) {
		let typed = "";
		void ask({
			title: `Drain ${of.name}`,
			isDangerous: true,
			confirm: `Delete ${counted(allWaiting(of), "waiting job")}`,
			body: () => [
				h("p", null, "Every waiting job of this queue is deleted, also those that are not due yet. Running jobs go on. This cannot be undone."),
				h("label", null, h("span", null, "Type ", h("strong", null, of.name), " to confirm"), h("input", {autocomplete: "off", oninput: (/** @type {InputEvent} */ event) => { typed = /** @type {HTMLInputElement} */ (event.target).value; }})),
			],
			isReady: () => typed === of.name,
			submit: async () => {
				const {removed} = await post(path`v1/queues/${of.name}/drain`);
				toast(`${counted(removed, "job")} deleted.`);
				await load();
			},
		});
	}

	/** @param {Queue} of */
	function header(of) {
		const slots = workers.reduce((sum, each) => sum + each.concurrency, 0);
		const status = of.paused ? "paused" : ((row?.paused ? undefined : row?.status) ?? (workers.length ? "working" : "no_worker"));
		return h(
			"div",
			{class: "row wrap", key: "actions"},
			h("strong", {class: `page-state ${statusClass(status) === "amber" ? "amber" : ""}`}, STATUS[status] ?? status),
			h("span", {class: "faint"}, workers.length ? h("a", {href: link("workers")}, `${counted(workers.length, "worker")} with ${counted(slots, "slot")}`) : "Start one:"),
			workers.length ? null : command(onStore(`jobyard worker --queue ${of.name}`)),
			may("operate")
				? h(
						"span",
						{class: "end row"},
						h("button", {type: "button", onclick: () => perform(() => post(path`v1/queues/${of.name}/${of.paused ? "resume" : "pause"}`), of.paused ? `${of.name} starts jobs again.` : `${of.name} is paused: running jobs go on, no more start.`)}, icon(of.paused ? "play" : "pause"), of.paused ? "Resume" : "Pause"),
						h("button", {type: "button", class: "danger", onclick: () => drain(of)}, "Drain…"),
					)
				: null,
		);
	}

	/** @param {Queue} of */
	function strip(of) {
		const rate = of.finished_per_minute ?? 0;
		const limit = of.settings.max_running;
		return numberStrip([
			{name: "Waiting", value: count(allWaiting(of)), href: link("jobs", null, {queue: name, state: "PENDING"}), note: dueWords(of)},
			{name: "Running", value: count(of.running), href: link("jobs", null, {queue: name, state: "RUNNING"}), unit: limit === null ? "" : `of ${count(limit)}`, note: limit !== null && (of.running ?? 0) >= limit ? "at its limit" : limit === null ? "no limit" : `${count(limit - (of.running ?? 0))} more may start`},
			{name: "Finished per minute", value: count(of.finished_per_minute), note: rate && of.waiting ? `empty in about ${span((of.waiting / rate) * 60)}` : of.waiting ? "" : "nothing waits"},
			{name: "Wait, 95th percentile", value: duration(row?.wait_p95_seconds), note: "of the last 5 minutes"},
			{name: "Oldest waiting", value: duration(row?.oldest_waiting_seconds), class: row?.status === "no_worker" ? "amber" : "", note: line?.groups[0] && row?.oldest_waiting_seconds ? counted(line.groups.length + line.left_out, "group in line", "groups in line") : " "},
			{name: "Failed", value: count(of.failed), href: link("jobs", null, {queue: name, state: ["FAILED", "TIMEOUT"]}), class: of.failed ? "red" : "faint", note: "kept; failed or timed out"},
		]);
	}

	/** @param {LineGroup} group */
	function setLimit(group) {
		return (/** @type {number | null} */ value) =>
			value === null ? request("DELETE", path`v1/queues/${name}/groups/${group.name}/limit`) : request("PUT", path`v1/queues/${name}/groups/${group.name}/limit`, {limit: value});
	}

	/** @param {LineGroup} group */
	function limitCell(group) {
		const origin = {own: group.limit === 1 ? "own limit, serial" : group.limit === 0 ? "own limit, blocks" : "own limit", queue: "from queue", none: ""}[group.limit_origin] ?? "";
		const canEdit = may("operate") && group.name !== null;
		return h("span", {class: "row"}, editNumber({id: `group-${name}-${group.name}`, label: `Limit of ${group.name ?? "no group"}`, value: group.effective_limit, none: "none", canEdit, save: setLimit(group)}), h("small", null, origin));
	}

	/** @param {LineGroup} group */
	function pauseButton(group) {
		if (group.name === null || !may("operate")) return null;
		const verb = group.paused ? "resume" : "pause";
		return h("button", {class: "small quiet", type: "button", onclick: () => perform(() => post(path`v1/queues/${name}/groups/${group.name}/${verb}`), group.paused ? `${group.name} starts jobs again.` : `${group.name} is paused.`)}, group.paused ? "Resume" : "Pause");
	}

	/** Jobs without a group have no list of their own.
	 * @param {LineGroup} group @param {string} state @param {string} text @param {string} [title] */
	function numberOf(group, state, text, title) {
		return group.name === null ? h("span", {title}, text) : h("a", {title, href: link("jobs", null, {queue: name, group: group.name, state})}, text);
	}

	/** @param {Line} shown */
	function groupsCard(shown) {
		const wanted = find.trim().toLowerCase();
		const rows = [...shown.groups, ...idle].filter((each) => (each.name ?? "no group").toLowerCase().includes(wanted));
		return h(
			"section",
			{class: "card"},
			h("header", null, h("h2", null, "Groups"), h("small", null, "in the order of the line"), h("input", {class: "end", type: "search", placeholder: "Find a group", "aria-label": "Find a group", "data-search": "", oninput: (/** @type {InputEvent} */ event) => { find = /** @type {HTMLInputElement} */ (event.target).value; update(); }})),
			rows.length === 0
				? empty(wanted ? `No group has “${find}” in its name.` : "No group has a job or a limit.", "Jobs join a group when they are submitted with one.")
				: table({
						label: "Groups in the order of the line",
						rows,
						key: (group) => group.name ?? "",
						columns: [
							{title: "Turn", class: "number", cell: (group) => group.turn ?? "–"},
							{title: "Group", phone: "title", cell: (group) => (group.name === null ? h("span", {class: "name"}, "no group") : h("a", {class: "name clipped", title: group.name, href: link("jobs", null, {queue: name, group: group.name})}, group.name))},
							{title: "Waiting", class: "number unit-waiting", phone: "side", cell: (group) => numberOf(group, "PENDING", count(allWaiting(group)), dueWords(group))},
							{title: "Running", class: "number", cell: (group) => numberOf(group, "RUNNING", group.effective_limit === null ? count(group.running) : `${count(group.running)} of ${count(group.effective_limit)}`)},
							{title: "", name: "Share of the limit", cell: (group) => limitBar(group.running, group.effective_limit)},
							{title: "Limit", cell: limitCell},
							{title: "What happens next", phone: "under", cell: (group) => h("span", {title: group.sentence, class: group.turn === 1 ? "blue" : group.turn === null ? "faint" : undefined}, nextWords(group))},
							{title: "", name: "Actions", class: "number", phone: "under-side", cell: pauseButton},
						],
					}),
		);
	}

	/** @param {Queue} of */
	function limitsCard(of) {
		const {settings} = of;
		const change = (/** @type {Setting} */ key) => (/** @type {number | null} */ value) => request("PATCH", path`v1/queues/${name}`, {[key]: value});
		return h(
			"section",
			{class: "card"},
			h("header", null, h("h2", null, "Limits"), h("small", {class: "end"}, "take effect with the next claim")),
			h(
				"dl",
				{class: "facts padded"},
				LIMITS.map(([key, label]) => [h("dt", null, label), h("dd", null, editNumber({id: `${name}-${key}`, label, value: settings[key], none: "no limit", canEdit: may("operate"), save: change(key)}))]),
				h("dt", null, "Keeps"),
				h("dd", null, `${count(settings.keep_completed)} completed${kept(settings.keep_completed_seconds)}, ${count(settings.keep_failed)} failed${kept(settings.keep_failed_seconds)}`),
				of.settings_origin === "operator" && may("operate")
					? [h("dt", null, "Changed"), h("dd", null, h("button", {class: "link", type: "button", onclick: () => perform(() => request("DELETE", path`v1/queues/${name}/settings`), "The declared limits apply again.")}, of.declared_settings ? "Restore the declared limits" : "Restore the defaults"))]
					: null,
			),
		);
	}

	return {
		title: () => [["Queues", link("queues")], [name]],
		stream: `?type=queue&queue=${encodeURIComponent(name)}`,
		load,
		onEvent: (event) => event.type === "io.jobyard.queue.changed.v1" && event.subject === name,
		close: () => picture.close(),
		view: () =>
			queue && line && [
				header(queue),
				strip(queue),
				h(
					"section",
					{class: "card", key: "line"},
					h("header", null, h("h2", null, "The line"), h("small", null, "One place for each group, however many jobs it has. The first group with room goes next, then to the back.")),
					line.groups.length ? picture.view() : empty("Nothing waits in this queue.", "When several groups have waiting jobs, this picture shows which of them goes next."),
				),
				h("div", {class: "columns", key: "groups"}, groupsCard(line), h("div", {class: "stack"}, limitsCard(queue), changes.length ? changesCard(changes) : null)),
			],
	};
}

/** @param {number} seconds */
function kept(seconds) {
	return seconds ? ` and those of the last ${span(seconds).replace(" 00m", "")}` : "";
}

/** @param {LineGroup} group */
function nextWords(group) {
	if (group.paused) return group.waiting ? "Paused: keeps its place" : "Paused";
	if (group.turn === null) return {full: "Full: keeps its place", blocked: "Blocked: limit is 0"}[/** @type {string} */ (group.status)] ?? "Nothing waits";
	return group.turn === 1 ? "Next free slot" : `After ${counted(group.turn - 1, "other")}`;
}

/** @param {AuditEntry[]} changes */
function changesCard(changes) {
	return h(
		"section",
		{class: "card"},
		h("header", null, h("h2", null, "Changes"), h("a", {class: "link end", href: link("settings")}, "Audit log")),
		h("ul", {class: "notes"}, changes.map((entry) => h("li", {key: `${entry.log}-${entry.number}`}, h("span", {class: "faint"}, icon(entry.action.includes("pause") ? "pause" : entry.action.includes("resume") ? "play" : "edit")), h("div", null, h("p", null, changeWords(entry)), h("small", null, moment(entry.at)))))),
	);
}
