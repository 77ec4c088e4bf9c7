// One run of a workflow: its graph with the states of the steps, live, and the same as a list.

import {get, path, post} from "../api.js";
import {carryOut, may, update} from "../app.js";
import {ask} from "../dialogs.js";
import {h} from "../dom.js";
import {jsonView, revealButton} from "../json_view.js";
import {span} from "../numbers.js";
import {link} from "../router.js";
import {age} from "../times.js";
import {bar, copyButton, empty, moment, stateMark, table} from "../widgets.js";
import {stepClass, workflowGraph} from "../workflow_graph.js";

/** @typedef {import("../workflow_graph.js").StepRun} StepRun */
/** @typedef {import("../workflow_graph.js").StepDefinition} StepDefinition */
/** @typedef {{job_id: string, workflow_id: string, version: number, platform: string, state: import("../types.d.ts").JobState, attempt: number, params: unknown, created_at: string, started_at: string | null, finished_at: string | null, elapsed_seconds: number | null, progress: import("../types.d.ts").Progress | null, steps: StepRun[], output: unknown, reason: string | null, cancel_requested: string | null}} WorkflowRun */

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	const id = location.name ?? "";
	/** @type {WorkflowRun | null} */
	let run = null;
	/** @type {StepDefinition[]} */
	let definitions = [];
	let isRevealed = false;

	/** @param {unknown} value */
	function revealed(value) {
		return h("span", {class: "end row"}, revealButton(value, isRevealed, () => { isRevealed = !isRevealed; update(); }));
	}

	/** @param {WorkflowRun} of */
	function cancel(of) {
		void ask({
			title: `Cancel ${of.workflow_id}`, confirm: "Cancel the run", isDangerous: true,
			body: () => h("p", null, "Running steps are asked to stop, and no further one starts."),
			submit: () => carryOut(() => post(path`api/v2/workflows/${id}/cancel`, {}), "The run is asked to stop."),
		});
	}

	return {
		title: () => [["Workflows", link("workflows")], [run?.workflow_id ?? id]],
		stream: `?job=${encodeURIComponent(id)}`,
		async load() {
			const [found, files] = await Promise.all([get(path`api/v2/workflows/${id}`), get("api/v2/workflows").catch(() => null)]);
			run = /** @type {WorkflowRun} */ (found.data);
			const file = files?.data.workflows.find((/** @type {{id: string}} */ each) => each.id === run?.workflow_id);
			const needs = new Map(file?.steps.map((/** @type {StepDefinition} */ step) => [step.id, step.needs]));
			definitions = run.steps.map((step) => ({...step, needs: needs.get(step.id) ?? []}));
		},
		onEvent: () => true,
		view() {
			if (!run) return null;
			const isOver = run.finished_at !== null;
			return [
				h(
					"div",
					{class: "row wrap", key: "head"},
					stateMark(run.state, undefined, "large"),
					h("span", {class: "chip"}, h("span", null, run.job_id), copyButton(run.job_id, "Copy the id")),
					h("span", {class: "faint"}, `version ${run.version} on ${run.platform} · created `, moment(run.created_at)),
					h("span", {class: "end row"}, h("a", {class: "link", href: link("jobs", id)}, "Open the job"), may("operate") && !isOver ? h("button", {type: "button", class: "danger", onclick: () => run && cancel(run)}, "Cancel…") : null),
				),
				run.reason ? h("div", {class: "banner problem", key: "reason"}, h("p", null, run.reason)) : null,
				h("section", {class: "card", key: "graph"}, h("header", null, h("h2", null, "Steps"), h("small", {class: "end"}, run.elapsed_seconds === null ? "" : `${isOver ? "ran" : "runs"} for ${span(run.elapsed_seconds)}`)), definitions.length ? workflowGraph(definitions, run.steps) : empty("No step has started yet.")),
				h(
					"div",
					{class: "columns", key: "details"},
					h("section", {class: "card"}, h("header", null, h("h2", null, "As a list")), steps(run.steps)),
					h("div", {class: "stack"}, h("section", {class: "card"}, h("header", null, h("h2", null, "Params"), revealed(run.params)), h("div", {class: "padded"}, jsonView(run.params, isRevealed))), h("section", {class: "card"}, h("header", null, h("h2", null, "Output"), revealed(run.output)), h("div", {class: "padded"}, run.state === "COMPLETED" ? jsonView(run.output, isRevealed) : h("p", {class: "faint"}, "It appears here when the run completes.")))),
				),
			];
		},
	};
}

/** @param {StepRun[]} steps */
function steps(steps) {
	return table({
		label: "Steps", rows: steps, key: (step) => step.id,
		columns: [
			{title: "Step", phone: "title", cell: (step) => h("span", {class: "name"}, step.id)},
			{title: "State", phone: "under", cell: (step) => stateMark(stepClass(step.status), step.status)},
			{title: "Kind", cell: (step) => step.kind},
			{title: "Now", class: "clip", phone: "below", cell: (step) => h("span", {class: step.reason && step.status !== "skipped" ? "red" : "faint"}, step.reason || step.message)},
			{title: "Progress", cell: (step) => (step.items ? bar(step.items.ended / Math.max(1, step.items.total), {label: `${step.items.ended} of ${step.items.total}`}) : step.percent === null ? null : bar(step.percent / 100))},
			{title: "Attempts", class: "number", cell: (step) => step.attempts},
			{title: "Took", class: "number", phone: "side", cell: (step) => (step.elapsed_seconds !== null ? span(step.elapsed_seconds) : step.started_at ? span(age(step.started_at)) : "–")},
		],
	});
}
