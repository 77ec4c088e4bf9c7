// Overview: the numbers of the moment, two charts, the queues, and what needs attention.

import {get, request} from "../api.js";
import {may, perform, update} from "../app.js";
import {throughputChart, waitChart} from "../charts.js";
import {h} from "../dom.js";
import {icon} from "../icons.js";
import {allWaiting, count, counted, dueWords, duration, percent, span} from "../numbers.js";
import {link} from "../router.js";
import {command, empty, numberStrip, onStore} from "../widgets.js";
import {queueTable} from "../queue_table.js";

/** @typedef {import("../types.d.ts").Overview} Overview */
/** @typedef {import("../types.d.ts").Attention} Attention */
/** @typedef {import("../types.d.ts").ChartData} ChartData */

/** @type {[string, string][]} */
const RANGES = [["5m", "5 min"], ["1h", "1 h"], ["24h", "24 h"]];
const KEY = "jobyard.range";
const SHOWN_QUEUES = 12;
const FEW_POINTS = 15;
/** @type {Record<string, number>} */
const CHART_MS = {"5m": 4000, "1h": 14000, "24h": 60000};

/** @returns {import("../types.d.ts").Page} */
export function open() {
	/** @type {Overview | null} */
	let data = null;
	let range = RANGES.some(([id]) => id === localStorage.getItem(KEY)) ? String(localStorage.getItem(KEY)) : "1h";
	let chartsAt = 0;
	let chartsFailed = "";
	const throughput = throughputChart();
	const wait = waitChart();

	/** @returns {Promise<void>} */
	async function loadCharts() {
		chartsAt = Date.now();
		try {
			/** @type {ChartData} */
			const found = await get(`v1/charts?range=${range}`);
			// A server that has just started has more to show in a shorter range.
			if (!localStorage.getItem(KEY) && range === "1h" && found.finished.filter((each) => each !== null).length < FEW_POINTS) {
				range = "5m";
				return await loadCharts();
			}
			throughput.show(found);
			wait.show(found);
			chartsFailed = "";
		} catch (error) {
			chartsFailed = error instanceof Error ? error.message : String(error);
		}
		update();
	}

	/** @param {string} chosen */
	function choose(chosen) {
		range = chosen;
		localStorage.setItem(KEY, chosen);
		void loadCharts();
		update();
	}

	return {
		title: () => [["Overview"]],
		stream: "?type=queue&type=stats",
		async load() {
			const isDue = Date.now() - chartsAt >= (CHART_MS[range] ?? 0);
			[data] = await Promise.all([get("v1/overview"), isDue ? loadCharts() : null]);
		},
		onEvent: (event) => {
			if (event.type === "io.jobyard.stats.v1" && data) {
				data = {...data, ...event.data, queues: data.queues, queues_left_out: data.queues_left_out};
				if (Date.now() - chartsAt >= (CHART_MS[range] ?? 0)) void loadCharts();
			}
			return event.type === "io.jobyard.queue.changed.v1";
		},
		close() {
			throughput.close();
			wait.close();
		},
		view: () =>
			data && [
				strip(data),
				h(
					"div",
					{class: "columns charts", key: "charts"},
					h(
						"section",
						{class: "card"},
						h("header", null, h("h2", null, "Finished per minute"), h("div", {class: "tabs end", role: "group", "aria-label": "Range"}, RANGES.map(([id, name]) => h("button", {type: "button", "aria-pressed": String(id === range), onclick: () => choose(id)}, name)))),
						chartsFailed ? empty("The history of the charts is not available.", chartsFailed) : throughput.view(),
					),
					h("section", {class: "card"}, h("header", null, h("h2", null, "Time from due to started"), h("small", {class: "end"}, "log scale")), chartsFailed ? empty("The history of the charts is not available.", chartsFailed) : wait.view()),
				),
				h(
					"div",
					{class: "columns alike", key: "lists"},
					h(
						"section",
						{class: "card"},
						h("header", null, h("h2", null, "Queues"), h("a", {class: "link end", href: link("queues")}, `All ${counted(data.queues.length + (data.queues_left_out ?? 0), "queue")}`)),
						data.queues.length ? queueTable(data.queues.slice(0, SHOWN_QUEUES)) : empty("No queue has a job yet.", "Submit one:", command(onStore("jobyard enqueue KIND --payload '{}'"))),
					),
					h("section", {class: "card phone-first"}, h("header", null, h("h2", null, "Needs attention"), h("small", {class: "end"}, count(data.attention.length))), attention(data.attention)),
				),
			],
	};
}

/** @param {Overview} data */
function strip(data) {
	const oldest = data.oldest_waiting;
	const finished = data.finished_per_minute;
	const workers = data.workers;
	const away = [workers.quiet && `${workers.quiet} quiet`, workers.lost && `${workers.lost} lost`].filter(Boolean).join(", ");
	return numberStrip([
		{name: "Finished per minute", value: count(finished), note: finished && data.waiting ? `empty in about ${span((data.waiting / finished) * 60)}` : data.waiting ? "" : "nothing waits"},
		{name: "Waiting", value: count(allWaiting(data)), href: link("jobs", null, {state: "PENDING"}), note: dueWords(data)},
		{name: "Running", value: count(data.running), href: link("jobs", null, {state: "RUNNING"}), unit: `of ${counted(data.slots, "slot")}`, note: h("a", {href: link("workers")}, counted(workers.live, "worker"), away ? `, ${away}` : "")},
		{name: "Failed", value: count(data.failed), href: link("dead-letters"), unit: data.failed === 1 ? "dead letter" : "dead letters", note: `${count(data.failed_last_hour)} in the last hour${data.finished_last_hour ? `, ${percent(data.failed_last_hour / data.finished_last_hour)}` : ""}`},
		{
			name: "Oldest waiting job",
			value: oldest ? duration(oldest.seconds) : "–",
			href: oldest ? (oldest.job_id ? link("jobs", oldest.job_id) : link("jobs", null, {queue: oldest.queue, state: "PENDING"})) : undefined,
			class: oldest?.reason === "no_worker" ? "amber" : "",
			note: oldest ? h("span", {title: oldest.sentence}, oldest.reason === "no_worker" ? `${oldest.queue} has no worker` : `in ${oldest.queue}`) : "nothing waits",
		},
		{name: "Wait, 95th percentile", value: duration(data.wait_p95_seconds), note: data.wait_p50_seconds === null ? "no job started in the last 5 minutes" : `median ${duration(data.wait_p50_seconds)}, p99 ${duration(data.wait_p99_seconds)}`},
	]);
}

/** @type {Record<string, import("../icons.js").IconName>} */
const ICONS = {queue: "queues", queues: "queues", worker: "workers", workers: "workers", schedule: "schedules", schedules: "schedules", job: "jobs", jobs: "jobs", "dead-letters": "dead-letters", runners: "runners"};

/** @param {Attention[]} items */
function attention(items) {
	if (!items.length) return empty("All is well.", "Queues without a worker, failures and missed schedules appear here.");
	return h(
		"ul",
		{class: "notes"},
		items.map((item, i) =>
			h(
				"li",
				{key: `${item.code}-${item.target?.name ?? i}`},
				h("span", {class: item.level}, icon(item.code.includes("worker") ? "workers" : (ICONS[item.target?.page ?? ""] ?? "dead-letters"))),
				h("div", null, item.target ? h("a", {href: targetOf(item.target)}, item.sentence) : h("span", null, item.sentence), item.command ? command(item.command) : null, action(item)),
			),
		),
	);
}

/** @param {{page: string, name: string | null}} target */
function targetOf(target) {
	const page = {queue: "queues", job: "jobs", schedule: "schedules", worker: "workers", dead_letters: "dead-letters"}[target.page] ?? target.page;
	if (page === "schedules") return link("schedules", null, {find: target.name});
	return link(page, page === "queues" || page === "jobs" ? target.name : null);
}

/** @param {Attention} item */
function action(item) {
	const todo = item.action;
	if (!todo || !may("operate")) return null;
	return h("div", {class: "row"}, h("button", {class: "small", type: "button", onclick: () => perform(() => request(todo.method, todo.path.replace(/^\//, "")), "Done.")}, todo.label));
}
