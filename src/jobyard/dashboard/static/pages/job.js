// One job: what happens now, its timeline, attempts, log, payload and result.

import {get, path} from "../api.js";
import {copy, may, update} from "../app.js";
import {h} from "../dom.js";
import {icon} from "../icons.js";
import {cancelJob, changePriority, deleteJob, legalActions, newJob, retryJob, runJobNow} from "../job_actions.js";
import {attemptNumbers, ENDING_STATES, ENDINGS, extent, JobTimeline} from "../job_timeline.js";
import {jsonView, revealButton, withoutSecrets} from "../json_view.js";
import {stringify} from "../json.js";
import {count, counted, duration, span} from "../numbers.js";
import {link} from "../router.js";
import {age, clock, preciseClock, zoneName} from "../times.js";
import {bar, copyButton, moment, stateMark, stateName} from "../widgets.js";

/** @typedef {import("../types.d.ts").Job} Job */
/** @typedef {import("../types.d.ts").AttemptError} AttemptError */
/** @typedef {{number: number, key: string, part: string, kind: string, name: string, status: string, recorded_at: string, seconds: number | null, child_id: string | null, error: {type: string, message: string} | null}} Operation */

const WORKFLOW_KIND = "jobyard.workflow";
const MAX_LOG = 1000;
const SHOWN_OPERATIONS = 200;
/** States of reported steps and of recorded operations. @type {Record<string, string>} */
const STEP_STATES = {passed: "COMPLETED", completed: "COMPLETED", failed: "FAILED", running: "RUNNING", started: "RUNNING"};
const LEVELS = ["all", "info", "warning", "error"];
/** @type {Record<string, number>} */
const RANK = {debug: 0, info: 1, warning: 2, warn: 2, error: 3, critical: 4};

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	const id = location.name ?? "";
	/** @type {Job | null} */
	let job = null;
	let sentence = "";
	/** What a workflow has recorded; other jobs have no history. @type {Operation[]} */
	let operations = [];
	let isFollowing = true;
	let level = "all";
	let isRevealed = false;
	const timeline = new JobTimeline();

	async function load() {
		/** @type {Job} */
		const found = await get(path`v1/jobs/${id}`);
		operations = (await get(`${path`v1/jobs/${id}/history`}?page_size=${SHOWN_OPERATIONS}`)).items;
		sentence = found.state === "PENDING" ? (await get(path`v1/jobs/${id}/explain`)).sentence : "";
		job = found;
		follow();
	}

	function reveal() {
		isRevealed = !isRevealed;
		update();
	}

	function follow() {
		if (!isFollowing) return;
		requestAnimationFrame(() => {
			const box = document.querySelector(".log");
			if (box) box.scrollTop = box.scrollHeight;
		});
	}

	/** @param {Job} of */
	function actions(of) {
		const legal = legalActions(of);
		const operates = may("operate");
		return h(
			"span",
			{class: "end row wrap"},
			of.kind === WORKFLOW_KIND ? h("a", {class: "link", key: "graph", href: link("workflows", of.id)}, "Open the graph") : null,
			operates && legal.includes("retry") ? h("button", {type: "button", class: "primary", key: "retry", onclick: () => retryJob(id)}, icon("retry"), "Retry") : null,
			operates && legal.includes("run_now") ? h("button", {type: "button", key: "run", onclick: () => runJobNow(id)}, icon("play"), "Run now") : null,
			may("submit") ? h("button", {type: "button", key: "clone", onclick: () => newJob(of)}, "Clone…") : null,
			operates && legal.includes("prioritise") ? h("button", {type: "button", key: "priority", onclick: () => changePriority(of)}, "Priority…") : null,
			operates && legal.includes("cancel") ? h("button", {type: "button", key: "cancel", class: "danger", onclick: () => cancelJob(of)}, "Cancel…") : null,
			operates && legal.includes("delete") ? h("button", {type: "button", key: "delete", class: "danger", onclick: () => deleteJob(of)}, "Delete…") : null,
		);
	}

	/** @param {Job} of */
	function nowCard(of) {
		const percent = of.progress?.percent;
		const hasBar = typeof percent === "number" && of.state === "RUNNING";
		return h(
			"section",
			{class: "card", key: "now"},
			h("header", null, h("h2", null, of.finished_at ? "How it ended" : "Now"), of.progress?.at && of.state === "RUNNING" ? h("small", {class: "end"}, "updated ", moment(of.progress.at)) : null),
			h(
				"div",
				{class: "padded now"},
				hasBar || of.progress?.message ? h("div", {class: "row"}, h("strong", null, of.progress?.message || "Progress"), hasBar ? h("span", {class: "end"}, `${Math.round(percent)} %`) : null) : null,
				hasBar ? bar(percent / 100, {class: "wide", label: `Progress: ${Math.round(percent)} %`}) : null,
				h("p", null, stateSentence(of, sentence)),
			),
		);
	}

	/** @param {Job} of */
	function log(of) {
		const lines = of.log ?? [];
		const shown = lines.filter((line) => level === "all" || (RANK[line.level.toLowerCase()] ?? 1) >= (RANK[level] ?? 0)).slice(-MAX_LOG);
		return h(
			"section",
			{class: "card", key: "log"},
			h(
				"header",
				null,
				h("h2", null, "Log"),
				h("small", null, lines.length ? `${count(shown.length)} of ${count(lines.length)} lines` : ""),
				h("select", {class: "end small", "aria-label": "Level", value: level, onchange: (/** @type {Event} */ event) => { level = /** @type {HTMLSelectElement} */ (event.target).value; update(); }}, LEVELS.map((each) => h("option", {value: each}, each === "all" ? "all levels" : `${each} and worse`))),
				h("label", {class: "row faint"}, h("input", {class: "switch", type: "checkbox", role: "switch", checked: isFollowing, onchange: (/** @type {Event} */ event) => { isFollowing = /** @type {HTMLInputElement} */ (event.target).checked; follow(); }}), "Follow"),
			),
			shown.length
				? h("ol", {class: "log", tabindex: "0", "aria-label": "Log lines"}, shown.map((line, i) => h("li", {key: `${line.at}-${i}`}, h("time", {datetime: line.at}, preciseClock(line.at)), h("span", {class: levelClass(line.level)}, line.level.toUpperCase().replace("WARNING", "WARN").slice(0, 5)), h("span", null, line.message))))
				: h("p", {class: "padded faint"}, lines.length ? "No line has this level." : of.state === "PENDING" ? "Lines appear here while the handler runs." : "The handler wrote no lines. It does so with await ctx.log(…)."),
		);
	}

	return {
		title: () => [["Jobs", link("jobs")], [job?.kind ?? id]],
		stream: `?job=${encodeURIComponent(id)}`,
		load,
		onEvent(event) {
			if (event.data?.progress && job) job.progress = {...event.data.progress, at: event.time};
			return true;
		},
		onKey(event) {
			if (!job || !may("operate")) return false;
			const legal = legalActions(job);
			if (event.key === "r" && legal.includes("retry")) void retryJob(id);
			else if (event.key === "c" && legal.includes("cancel")) void cancelJob(job);
			else return false;
			return true;
		},
		close: () => timeline.close(),
		view() {
			if (!job) return null;
			const {from, to} = extent(job);
			return [
				h(
					"div",
					{class: "row wrap", key: "head"},
					stateMark(job.state, job.waiting_for ? "Parked" : stateName(job.state), "large"),
					h("span", {class: "chip"}, h("span", null, job.id), copyButton(job.id, "Copy the id")),
					h("span", {class: "faint"}, `attempt ${job.attempt} of ${job.max_attempts} · created `, moment(job.created_at)),
					actions(job),
				),
				h(
					"div",
					{class: "columns", key: "columns"},
					h(
						"div",
						{class: "stack"},
						nowCard(job),
						h("section", {class: "card", key: "timeline"}, h("header", null, h("h2", null, "Timeline"), h("small", {class: "end"}, `${clock(from)} to ${job.finished_at ? clock(to) : "now"} ${zoneName()}`)), timeline.view(job)),
						attempts(job),
						job.steps?.length ? steps(job) : operations.length ? workflowSteps(operations, job) : null,
						log(job),
					),
					h("div", {class: "stack"}, facts(job), payload(job, isRevealed, reveal), result(job, isRevealed, reveal)),
				),
			];
		},
	};
}

/** @param {Job} job @param {string} explanation */
function stateSentence(job, explanation) {
	if (job.state === "PENDING") return explanation;
	if (job.state !== "RUNNING" || !job.started_at) {
		const ran = job.started_at && job.finished_at ? ` after ${duration((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000)}` : "";
		return [`${stateName(job.state)}${ran}, `, moment(job.finished_at), job.reason ? `: ${job.reason}` : "", "."];
	}
	const ran = age(job.started_at);
	const percent = job.progress?.percent ?? 0;
	const needs = percent > 0 && percent < 100 ? (ran / percent) * (100 - percent) : null;
	const left = job.timeout_seconds === null ? null : job.timeout_seconds - ran;
	const isLate = needs !== null && left !== null && needs > left;
	return [
		"Runs on ", job.worker ? h("a", {href: link("workers")}, job.worker) : "a worker", ` for ${span(ran)}. `,
		job.cancel_requested === null ? "" : `It was asked to stop: ${job.cancel_requested || "no reason given"}. `,
		needs === null ? (left === null ? "" : `It times out in ${span(left)}.`) : h("span", {class: isLate ? "amber" : undefined}, `At this pace it needs ${span(needs)} more${left === null ? "." : isLate ? `, but times out in ${span(left)}.` : ` and has ${span(left)} left.`}`),
	];
}

/** @param {Job} job */
function attempts(job) {
	const lastFailed = job.errors.length - 1;
	const numbers = attemptNumbers(job);
	return h(
		"section",
		{class: "card", key: "attempts"},
		h("header", null, h("h2", null, "Attempts")),
		job.state === "RUNNING" || job.state === "COMPLETED"
			? h("details", {key: "current"}, h("summary", null, stateMark(job.state, `${numbers.current} · ${job.state.toLowerCase()}`), h("span", {class: "faint"}, !job.started_at ? "" : job.finished_at ? `after ${duration((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000)}` : `since ${clock(job.started_at)}`), h("span", {class: "end faint"}, job.worker ?? "")), h("p", {class: "padded faint"}, job.state === "RUNNING" ? "It has not ended yet." : "It ended without an error."))
			: null,
		job.errors.map((error, i) => attempt(error, i, numbers.errors[i] ?? i + 1, i === lastFailed)).reverse(),
		!job.errors.length && job.attempt === 0 ? h("p", {class: "padded faint"}, "None yet.") : null,
	);
}

/** @param {AttemptError} error @param {number} i @param {number} number @param {boolean} isLast */
function attempt(error, i, number, isLast) {
	const lines = error.traceback?.trimEnd().split("\n") ?? [];
	return h(
		"details",
		{key: `attempt-${i}`, open: isLast},
		h("summary", null, stateMark(ENDING_STATES[error.ending] ?? "failed", `${number} · ${error.ending === "error" ? "raised" : (ENDINGS[error.ending] ?? error.ending)}`), h("span", null, error.type ? `${error.type}: ` : "", error.message), h("span", {class: "end faint not-phone"}, error.worker ?? "")),
		h("div", {class: "padded"}, h("pre", {class: "block", tabindex: "0", role: "group", "aria-label": "Traceback"}, lines.length ? [lines.slice(0, -1).map((line) => `${line}\n`), h("span", {class: "red"}, lines.at(-1))] : error.message), h("small", null, "Ended ", moment(error.at), error.worker ? ` on ${error.worker}` : "")),
	);
}

/** @param {Job} job */
function steps(job) {
	return h(
		"section",
		{class: "card", key: "steps"},
		h("header", null, h("h2", null, "Steps")),
		h("ul", {class: "notes"}, job.steps?.map((step) => stepItem(step.name, step.name, job.state !== "RUNNING" && step.status === "running" ? "CANCELLED" : (STEP_STATES[step.status] ?? "PENDING"), step.started_at ? span(((step.finished_at ? Date.parse(step.finished_at) : Date.now()) - Date.parse(step.started_at)) / 1000) : ""))),
	);
}

/**
 * The steps of a workflow function, as it has recorded them: a step that runs for the first time is not among them.
 * @param {Operation[]} operations
 * @param {Job} job
 */
function workflowSteps(operations, job) {
	/** @type {Map<string, {main: Operation | null, parts: Operation[]}>} */
	const byKey = new Map();
	for (const each of operations) {
		const found = byKey.get(each.key) ?? {main: null, parts: []};
		if (each.part) found.parts.push(each);
		else found.main = each;
		byKey.set(each.key, found);
	}
	return h(
		"section",
		{class: "card", key: "steps"},
		h("header", null, h("h2", null, "Steps"), h("small", null, "as the workflow recorded them")),
		h(
			"ul",
			{class: "notes"},
			[...byKey].map(([key, {main, parts}]) => {
				const tries = parts.filter((each) => each.part.startsWith("try"));
				const failure = main ? main.error : tries.at(-1)?.error;
				const name = !main ? key : main.kind === "step" ? main.name || key : `${main.kind.replaceAll("_", " ")} ${main.name}`.trim();
				const hasEnded = main?.status === "started" && (job.state === "COMPLETED" || parts.length > 0);
				const state = hasEnded ? "COMPLETED" : main ? (STEP_STATES[main.status] ?? "PENDING") : job.finished_at ? "FAILED" : "PENDING";
				const text = failure ? `${failure.type ? `${failure.type}: ` : ""}${failure.message}` : "";
				const again = tries.length && !job.finished_at && !main ? `failed ${counted(tries.length, "time")}, is tried again: ` : "";
				return stepItem(key, main?.child_id ? h("a", {class: "link", href: link("jobs", main.child_id)}, name) : name, state, typeof main?.seconds === "number" ? span(main.seconds) : moment((main ?? tries.at(-1))?.recorded_at), again + text);
			}),
		),
	);
}

/** @param {string} key @param {import("../types.d.ts").Content} name @param {string} state @param {import("../types.d.ts").Content} took @param {string} [problem] */
function stepItem(key, name, state, took, problem = "") {
	return h("li", {key, class: "step"}, stateMark(state, h("span", {class: "unseen"}, stateName(state))), h("div", {class: "row"}, h("span", null, name), problem ? h("span", {class: state === "FAILED" ? "red" : "faint"}, problem) : null, h("small", {class: "end"}, took)));
}

/** @param {Job} job */
function facts(job) {
	/** @type {[string, import("../types.d.ts").Content][]} */
	const rows = [
		["Queue", h("a", {class: "link", href: link("queues", job.queue)}, job.queue)],
		["Group", job.group === null ? h("span", {class: "faint"}, "none") : h("a", {class: "link", href: link("jobs", null, {queue: job.queue, group: job.group})}, job.group)],
		["Kind", h("a", {class: "link", href: link("jobs", null, {kind: job.kind})}, job.kind)],
		["Priority", job.priority],
		["Timeout", job.timeout_seconds === null ? "none" : `${span(job.timeout_seconds)} each attempt`],
		["Backoff", backoff(job)],
	];
	if (job.run_at && age(job.run_at) < 0) rows.push(["Due", moment(job.run_at)]);
	if (job.waiting_for) rows.push(["Waits for", h("code", null, job.waiting_for)]);
	if (job.unique_key) rows.push(["Unique key", h("code", null, job.unique_key)]);
	if (job.tags.length) rows.push(["Tags", h("span", {class: "row wrap"}, job.tags.map((tag) => h("a", {class: "chip", href: link("jobs", null, {tag})}, h("span", null, tag))))]);
	if (job.deaths) rows.push(["Workers died", h("span", {class: "amber"}, job.deaths)]);
	if (job.external_id) rows.push(["External id", h("code", null, job.external_id)]);
	if (job.submitted_by) rows.push(["Submitted by", `token ${job.submitted_by}`]);
	return h("section", {class: "card"}, h("header", null, h("h2", null, "Facts")), h("dl", {class: "facts padded"}, rows.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])));
}

/** @param {Job} job */
function backoff({backoff: rule, max_attempts}) {
	if (max_attempts <= 1) return "none: one attempt";
	if (rule.type === "fixed") return `${span(Number(rule.seconds))} each time`;
	if (rule.type === "delays") return /** @type {number[]} */ (rule.seconds ?? []).map(span).join(", ");
	const base = rule.base_seconds ?? 2;
	const factor = rule.factor ?? 2;
	const waits = Array.from({length: Math.min(3, max_attempts - 1)}, (_, i) => span(Math.min(base * factor ** i, rule.max_seconds ?? 3600)));
	return waits.join(", ") + (max_attempts > 4 ? ", …" : "");
}

/** @param {Job} job @param {boolean} isRevealed @param {() => void} reveal */
function payload(job, isRevealed, reveal) {
	return h(
		"section",
		{class: "card"},
		h("header", null, h("h2", null, "Payload"), jsonActions(job.payload, isRevealed, reveal)),
		h("div", {class: "padded"}, jsonView(job.payload, isRevealed), h("small", null, "Private values are never shown.")),
	);
}

/** @param {Job} job @param {boolean} isRevealed @param {() => void} reveal */
function result(job, isRevealed, reveal) {
	const isThere = job.state === "COMPLETED";
	return h(
		"section",
		{class: "card"},
		h("header", null, h("h2", null, "Result"), isThere ? jsonActions(job.result, isRevealed, reveal) : null),
		h("div", {class: "padded"}, isThere ? jsonView(job.result, isRevealed) : h("p", {class: "faint"}, job.finished_at ? "None: the job did not complete." : "None yet. It appears here when the job completes.")),
	);
}

/** @param {unknown} value @param {boolean} isRevealed @param {() => void} reveal */
function jsonActions(value, isRevealed, reveal) {
	return h("span", {class: "end row"}, revealButton(value, isRevealed, reveal), h("button", {class: "small quiet", type: "button", onclick: () => copy(stringify(isRevealed ? value : withoutSecrets(value), 2))}, icon("copy"), "Copy"));
}

/** @param {string} level */
function levelClass(level) {
	const rank = RANK[level.toLowerCase()] ?? 1;
	return rank >= 3 ? "red" : rank === 2 ? "amber" : "soft";
}
