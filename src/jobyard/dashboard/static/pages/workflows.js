// Workflows: the files that the server has loaded, and their runs.

import {get, post} from "../api.js";
import {may} from "../app.js";
import {ask} from "../dialogs.js";
import {h} from "../dom.js";
import {icon} from "../icons.js";
import {parse} from "../json.js";
import {waitedOrRan} from "../job_table.js";
import {count, counted} from "../numbers.js";
import {go, link} from "../router.js";
import {bar, command, empty, moment, stateMark, table, tail} from "../widgets.js";
import {workflowGraph} from "../workflow_graph.js";

/** @typedef {import("../types.d.ts").Job} Job */
/** @typedef {{id: string, version: number, description: string, params: Record<string, any>, steps: import("../workflow_graph.js").StepDefinition[]}} Workflow */

const KIND = "jobyard.workflow";
const SHOWN_RUNS = 30;

/** @returns {import("../types.d.ts").Page} */
export function open() {
	/** @type {Workflow[]} */
	let workflows = [];
	/** @type {Job[]} */
	let runs = [];
	return {
		title: () => [["Workflows"]],
		stream: `?kind=${KIND}`,
		async load() {
			const [files, jobs] = await Promise.all([get("api/v2/workflows"), get(`v1/jobs?kind=${KIND}&page_size=${SHOWN_RUNS}`)]);
			workflows = files.data.workflows;
			runs = jobs.items;
		},
		onEvent: () => true,
		view: () => [
			h(
				"section",
				{class: "card", key: "runs"},
				h("header", null, h("h2", null, "Runs"), h("small", null, runs.length ? `the newest ${count(runs.length)}` : ""), h("a", {class: "link end", href: link("jobs", null, {kind: KIND})}, "All runs as jobs")),
				runs.length
					? table({
							label: "Runs of workflows", rows: runs, key: (job) => job.id,
							columns: [
								{title: "State", phone: "under", cell: (job) => stateMark(job.state)},
								{title: "Workflow", phone: "title", cell: (job) => h("a", {class: "name", href: link("workflows", job.id)}, nameOf(job))},
								{title: "Id", cell: (job) => h("a", {class: "mono soft", href: link("workflows", job.id)}, tail(job.id))},
								{title: "Platform", cell: (job) => h("a", {href: link("queues", job.queue)}, job.group ?? job.queue)},
								{title: "Now", class: "clip", phone: "below", cell: (job) => h("span", {class: "faint"}, job.progress?.message || job.reason || "")},
								{title: "Progress", cell: (job) => (typeof job.progress?.percent === "number" ? bar(job.progress.percent / 100) : null)},
								{title: "Waited or ran", class: "number", phone: "side", cell: waitedOrRan},
								{title: "Created", class: "number faint", phone: "under-side", cell: (job) => moment(job.created_at)},
							],
						})
					: empty("No runs yet.", workflows.length ? "Start one of the workflows below." : "Load workflow files into the server first:", workflows.length ? null : command("jobyard up --workflows FOLDER")),
			),
			workflows.map((workflow) =>
				h(
					"section",
					{class: "card", key: `file-${workflow.id}`},
					h("header", null, h("h2", null, workflow.id), h("small", null, `${workflow.description ? `${workflow.description} · ` : ""}version ${workflow.version}, ${counted(workflow.steps.length, "step")}`), may("submit") ? h("button", {class: "small end", type: "button", onclick: () => start(workflow)}, icon("play"), "Run…") : null),
					workflowGraph(workflow.steps, []),
				),
			),
		],
	};
}

/** @param {Job} job */
export function nameOf(job) {
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
