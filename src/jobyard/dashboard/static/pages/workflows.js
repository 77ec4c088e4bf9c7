// Workflows: the files that the server has loaded, and the runs of files and of workflow functions.

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
const SHOWN_RUNS = 15;
// Each kind is one request.
const MAX_KINDS = 12;

/** @returns {import("../types.d.ts").Page} */
export function open() {
	/** @type {Workflow[]} */
	let workflows = [];
	/** @type {Job[]} */
	let runs = [];
	/** @type {string[]} */
	let kinds = [KIND];
	return {
		title: () => [["Workflows"]],
		stream: "?type=enqueued&type=started&type=progress&type=completed&type=failed&type=cancelled",
		async load() {
			const [files, known] = await Promise.all([get("api/v2/workflows"), get("v1/kinds")]);
			workflows = files.data.workflows;
			kinds = [KIND, ...known.items.filter((/** @type {{is_workflow: boolean}} */ each) => each.is_workflow).map((/** @type {{name: string}} */ each) => each.name)].slice(0, MAX_KINDS);
			const pages = await Promise.all(kinds.map((kind) => get(`v1/jobs?kind=${encodeURIComponent(kind)}&page_size=${SHOWN_RUNS}`)));
			runs = pages.flatMap((page) => page.items).sort((/** @type {Job} */ a, /** @type {Job} */ b) => b.created_at.localeCompare(a.created_at)).slice(0, SHOWN_RUNS);
		},
		onEvent: (event) => kinds.includes(event.data?.kind) || runs.some((job) => job.id === event.data?.job_id),
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
								{title: "Workflow", phone: "title", cell: (job) => h("a", {class: "name", href: runLink(job)}, nameOf(job))},
								{title: "Id", cell: (job) => h("a", {class: "mono soft", href: runLink(job)}, tail(job.id))},
								{title: "Platform", cell: (job) => h("a", {href: link("queues", job.queue)}, job.group ?? job.queue)},
								{title: "Now", class: "clip", phone: "below", cell: (job) => [h("span", {class: "faint"}, job.progress?.message || ""), job.finished_at && job.reason ? h("span", {class: "red", title: job.reason}, `${job.progress?.message ? " · " : ""}${job.reason}`) : null]},
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
