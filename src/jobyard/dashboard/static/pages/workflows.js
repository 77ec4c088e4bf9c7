// Workflows: files and functions with their numbers of runs, the newest runs of both, and the graphs of the files.

import {get, post, query} from "../api.js";
import {may, update} from "../app.js";
import {ask} from "../dialogs.js";
import {h} from "../dom.js";
import {icon} from "../icons.js";
import {parse} from "../json.js";
import {jobState, waitedOrRan} from "../job_table.js";
import {capped, count, counted} from "../numbers.js";
import {go, link} from "../router.js";
import {bar, command, empty, moment, table, tail} from "../widgets.js";
import {workflowGraph} from "../workflow_graph.js";

/** @typedef {import("../types.d.ts").Job} Job */
/** @typedef {import("../types.d.ts").JobState} JobState */
/** @typedef {{counts: Partial<Record<JobState, number>>, cap: number, is_complete: boolean}} RunCounts */
/** A workflow file or function; `filter` selects its runs among the jobs.
 * @typedef {{name: string, what: string, filter: Record<string, string>, file: Workflow | null}} Entry */
/** @typedef {{id: string, version: number, description: string, params: Record<string, any>, steps: import("../workflow_graph.js").StepDefinition[]}} Workflow */

const KIND = "jobyard.workflow";
/** Of the tag that the runs of a file have. */
const TAG = "workflow:";
const SHOWN_RUNS = 15;
// Each kind is one request.
const MAX_KINDS = 12;
// Each workflow is one request.
const MAX_COUNTED = 24;
const COUNT_MS = 3000;
/** @type {[string, JobState[], string][]} */
const COLUMNS = [["Waiting", ["PENDING"], ""], ["Running", ["RUNNING"], "unit-running"], ["Failed", ["FAILED", "TIMEOUT"], ""], ["Cancelled", ["CANCELLED"], ""]];

/** @returns {import("../types.d.ts").Page} */
export function open() {
	/** @type {Workflow[]} */
	let workflows = [];
	/** @type {Job[]} */
	let runs = [];
	/** @type {string[]} */
	let kinds = [KIND];
	/** @type {Entry[]} */
	let entries = [];
	/** @type {Map<string, RunCounts>} */
	let counts = new Map();
	let countedAt = -Infinity;
	let hasApp = true;

	async function loadCounts() {
		if (performance.now() - countedAt < COUNT_MS) return;
		countedAt = performance.now();
		const states = COLUMNS.flatMap(([, each]) => each);
		const found = await Promise.all(entries.slice(0, MAX_COUNTED).map(async ({name, filter}) => /** @type {[string, RunCounts | null]} */ ([name, await get(`v1/jobs/counts${query({...filter, state: states})}`).catch(() => null)])));
		counts = new Map(found.flatMap(([name, each]) => (each ? [[name, each]] : [])));
		update();
	}

	/** @param {Entry} entry @param {JobState[]} states */
	function number(entry, states) {
		const of = counts.get(entry.name);
		if (!of) return h("span", {class: "faint"}, "–");
		const found = states.map((state) => of.counts[state] ?? 0);
		const sum = found.reduce((a, b) => a + b, 0);
		const colour = !sum ? "faint" : states.includes("FAILED") ? "red" : undefined;
		return h("a", {class: colour, href: link("jobs", null, {...entry.filter, state: states})}, capped(sum, !of.is_complete || found.some((each) => each >= of.cap)));
	}

	function workflowTable() {
		const files = entries.filter((each) => each.file).length;
		const parts = [files && counted(files, "file"), entries.length > files && counted(entries.length - files, "function")].filter(Boolean).join(" and ");
		return h(
			"section",
			{class: "card", key: "workflows"},
			h("header", null, h("h2", null, counted(entries.length, "workflow")), h("small", null, parts)),
			entries.length
				? table({
						label: "Workflows", rows: entries, key: (entry) => entry.name,
						columns: [
							{title: "Workflow", phone: "title", cell: (entry) => h("a", {class: "name clipped", title: `All runs of ${entry.name}`, href: link("jobs", null, entry.filter)}, entry.name)},
							{title: "Declared as", class: "clip", phone: "under", cell: (entry) => h("span", {class: "faint", title: entry.what}, entry.what)},
							...COLUMNS.map(([title, states, unit]) => ({title, class: `number ${unit}`.trim(), phone: title === "Running" ? "side" : undefined, cell: (/** @type {Entry} */ entry) => number(entry, states)})),
							{title: "", name: "Actions", class: "number", phone: "under-side", cell: (entry) => (entry.file && may("submit") ? h("button", {class: "small", type: "button", onclick: () => entry.file && start(entry.file)}, icon("play"), "Run…") : null)},
						],
					})
				: empty("The server knows no workflow.", hasApp ? "Load workflow files:" : "It has no application, so it does not know workflow functions. Start it with the application, or with workflow files:", command(hasApp ? "jobyard up --workflows FOLDER" : "jobyard --app MODULE:ATTRIBUTE up --workflows FOLDER")),
		);
	}

	return {
		title: () => [["Workflows"]],
		stream: "?type=enqueued&type=started&type=progress&type=completed&type=failed&type=cancelled",
		async load() {
			const [files, known] = await Promise.all([get("api/v2/workflows"), get("v1/kinds")]);
			workflows = files.data.workflows;
			hasApp = !known.any_kind;
			/** @type {{name: string, queue: string}[]} */
			const functions = known.items.filter((/** @type {{is_workflow: boolean}} */ each) => each.is_workflow);
			entries = [
				...workflows.map((file) => ({name: file.id, what: `file, version ${file.version}, ${counted(file.steps.length, "step")}`, filter: {kind: KIND, tag: `${TAG}${file.id}`}, file})),
				...functions.map(({name, queue}) => ({name, what: `function in ${queue}`, filter: {kind: name}, file: null})),
			];
			kinds = [KIND, ...functions.map((each) => each.name)].slice(0, MAX_KINDS);
			const pages = await Promise.all(kinds.map((kind) => get(`v1/jobs?kind=${encodeURIComponent(kind)}&page_size=${SHOWN_RUNS}`)));
			runs = pages.flatMap((page) => page.items).sort((/** @type {Job} */ a, /** @type {Job} */ b) => b.created_at.localeCompare(a.created_at)).slice(0, SHOWN_RUNS);
			void loadCounts();
		},
		onEvent: (event) => kinds.includes(event.data?.kind) || runs.some((job) => job.id === event.data?.job_id),
		view: () => [
			workflowTable(),
			h(
				"section",
				{class: "card", key: "runs"},
				h("header", null, h("h2", null, "Runs"), h("small", null, runs.length ? `the newest ${count(runs.length)}` : "")),
				runs.length
					? table({
							label: "Runs of workflows", rows: runs, key: (job) => job.id,
							columns: [
								{title: "State", phone: "under", cell: jobState},
								{title: "Workflow", phone: "title", cell: (job) => h("a", {class: "name", href: runLink(job)}, nameOf(job))},
								{title: "Id", cell: (job) => h("a", {class: "mono soft", href: runLink(job)}, tail(job.id))},
								{title: "Platform", cell: (job) => h("a", {href: link("queues", job.queue)}, job.group ?? job.queue)},
								{title: "Now", class: "clip", phone: "below", cell: (job) => [h("span", {class: "faint"}, job.progress?.message || ""), job.finished_at && job.reason ? h("span", {class: "red", title: job.reason}, `${job.progress?.message ? " · " : ""}${job.reason}`) : null]},
								{title: "Progress", cell: (job) => (typeof job.progress?.percent === "number" ? bar(job.progress.percent / 100) : null)},
								{title: "Waited or ran", class: "number", phone: "side", cell: waitedOrRan},
								{title: "Created", class: "number faint", phone: "under-side", cell: (job) => moment(job.created_at)},
							],
						})
					: empty("No runs yet.", entries.length ? "They appear here as soon as a workflow is started." : ""),
			),
			workflows.map((workflow) =>
				h(
					"section",
					{class: "card", key: `file-${workflow.id}`},
					h("header", null, h("h2", null, workflow.id), h("small", null, `${workflow.description ? `${workflow.description} · ` : ""}version ${workflow.version}, ${counted(workflow.steps.length, "step")}`)),
					workflowGraph(workflow.steps, []),
				),
			),
		],
	};
}

/** Only runs of files have a graph; the page of the job shows the steps of a function.
 * @param {Job} job */
const runLink = (job) => link(job.kind === KIND ? "workflows" : "jobs", job.id);

/** @param {Job} job */
export function nameOf(job) {
	if (job.kind !== KIND) return job.kind;
	const payload = /** @type {{workflow_id?: string, workflow?: {id?: string}}} */ (job.payload ?? {});
	return payload.workflow_id ?? payload.workflow?.id ?? "workflow";
}

/** @param {Workflow} workflow */
async function start(workflow) {
	const defaults = Object.fromEntries(Object.entries(workflow.params.properties ?? {}).map(([name, schema]) => [name, /** @type {{default?: unknown}} */ (schema).default ?? null]));
	let text = JSON.stringify(defaults, null, 2);
	let id = "";
	const params = () => { try { return parse(text || "{}"); } catch { return undefined; } };
	const isDone = await ask({
		title: `Run ${workflow.id}`,
		confirm: "Run",
		body: () => [h("label", null, "Params", h("textarea", {rows: 6, spellcheck: "false", value: text, oninput: (/** @type {InputEvent} */ event) => { text = /** @type {HTMLTextAreaElement} */ (event.target).value; }})), params() === undefined ? h("p", {class: "field-error"}, "The params are not JSON.") : null],
		isReady: () => params() !== undefined,
		submit: async () => { id = (await post("api/v2/workflows/execute", {workflow_id: workflow.id, params: params()})).data.job_id; },
	});
	if (isDone) go(link("workflows", id));
}
