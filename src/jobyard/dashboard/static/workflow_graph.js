// The graph of a workflow, left to right: a step stands one column after the last step that it needs.

import {h} from "./dom.js";
import {span} from "./numbers.js";
import {age} from "./times.js";

/** @typedef {{id: string, kind: string, needs: string[], on_failure: boolean, description?: string}} StepDefinition */
/** @typedef {{id: string, kind: string, status: string, on_failure: boolean, started_at: string | null, finished_at: string | null, elapsed_seconds: number | null, attempts: number, items: {total: number, ended: number, failed: number} | null, percent: number | null, message: string, reason: string}} StepRun */

const WIDTH = 172;
const HEIGHT = 46;
const GAP_X = 44;
const GAP_Y = 14;
/** Outlines of the states in a box of 14 pixels, as in the style sheet. @type {Record<string, string>} */
const GLYPHS = {
	pending: "M7 1a6 6 0 1 0 0 12a6 6 0 1 0 0-12ZM7 2.6a4.4 4.4 0 1 0 0 8.8a4.4 4.4 0 1 0 0-8.8Z",
	running: "M7 1a6 6 0 1 0 0 12a6 6 0 1 0 0-12ZM7 2.6a4.4 4.4 0 1 0 0 8.8a4.4 4.4 0 1 0 0-8.8ZM7 3.9a3.1 3.1 0 0 1 0 6.2Z",
	completed: "M7 1a6 6 0 1 0 0 12a6 6 0 1 0 0-12ZM3.7 7.1l1.1-1.1 1.5 1.5 3-3.1 1.1 1.1-4.1 4.2Z",
	failed: "M7 0L14 7L7 14L0 7ZM5 4.1L7 6.1L9 4.1L9.9 5L7.9 7L9.9 9L9 9.9L7 7.9L5 9.9L4.1 9L6.1 7L4.1 5Z",
	skipped: "M7 1a6 6 0 1 0 0 12a6 6 0 1 0 0-12ZM7 2.6a4.4 4.4 0 1 0 0 8.8a4.4 4.4 0 1 0 0-8.8ZM4 9.2L9.2 4L10 4.8L4.8 10Z",
	interrupted: "M7 1a6 6 0 1 0 0 12a6 6 0 1 0 0-12ZM6.2 3.6H7.8V7.8H6.2ZM6.2 9H7.8V10.6H6.2Z",
};

/** @param {string} status */
export function stepClass(status) {
	return {skipped: "cancelled", interrupted: "timeout"}[status] ?? status;
}

/**
 * The column of each step. A step that waits for a failure stands last.
 * @param {readonly StepDefinition[]} steps
 */
export function columns(steps) {
	/** @type {Map<string, number>} */
	const found = new Map();
	const byId = new Map(steps.map((step) => [step.id, step]));
	/** @type {(id: string, above: Set<string>) => number} */
	const depth = (id, above) => {
		const known = found.get(id);
		if (known !== undefined) return known;
		const needs = byId.get(id)?.needs ?? [];
		const inner = new Set(above).add(id);
		const own = needs.reduce((/** @type {number} */ most, need) => Math.max(most, inner.has(need) ? 0 : depth(need, inner) + 1), 0);
		found.set(id, own);
		return own;
	};
	for (const step of steps) depth(step.id, new Set());
	const last = Math.max(0, ...steps.filter((step) => !step.on_failure).map((step) => found.get(step.id) ?? 0));
	for (const step of steps) if (step.on_failure && !step.needs.length) found.set(step.id, last + 1);
	return found;
}

/**
 * @param {readonly StepDefinition[]} steps
 * @param {readonly StepRun[]} runs
 */
export function workflowGraph(steps, runs) {
	const column = columns(steps);
	/** @type {Map<number, number>} */
	const filled = new Map();
	const places = new Map(steps.map((step) => {
		const at = column.get(step.id) ?? 0;
		const row = filled.get(at) ?? 0;
		filled.set(at, row + 1);
		return [step.id, {x: at * (WIDTH + GAP_X) + 1, y: row * (HEIGHT + GAP_Y) + 1}];
	}));
	const width = (Math.max(0, ...column.values()) + 1) * (WIDTH + GAP_X) - GAP_X + 2;
	const height = Math.max(1, ...filled.values()) * (HEIGHT + GAP_Y) - GAP_Y + 2;
	const byId = new Map(runs.map((run) => [run.id, run]));
	return h(
		"div",
		{class: "graph scroll", tabindex: "0", role: "group", "aria-label": "The graph of steps; the list below has the same steps"},
		h(
			"svg",
			{width, height, "aria-hidden": "true"},
			steps.flatMap((step) => step.needs.map((need) => edge(places.get(need), places.get(step.id), `${need}-${step.id}`))),
			steps.map((step) => node(step, byId.get(step.id), places.get(step.id) ?? {x: 0, y: 0})),
		),
	);
}

/** @param {{x: number, y: number} | undefined} from @param {{x: number, y: number} | undefined} to @param {string} key */
function edge(from, to, key) {
	if (!from || !to) return null;
	const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
	// Straight past the columns between, so that it bends in the last gap and not behind their steps.
	const turn = Math.max(x1, x2 - GAP_X);
	const bend = Math.max(20, (x2 - turn) / 2);
	return h("path", {key: `edge-${key}`, class: "edge", d: `M${x1} ${y1}H${turn}C${turn + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`});
}

/** @param {StepDefinition} step @param {StepRun | undefined} run @param {{x: number, y: number}} place */
function node(step, run, {x, y}) {
	const status = run?.status ?? "pending";
	const name = step.id.length > 19 ? `${step.id.slice(0, 18)}…` : step.id;
	return h(
		"g",
		{key: `node-${step.id}`, transform: `translate(${x} ${y})`},
		h("title", null, `${step.id}: ${status}${run?.reason ? `, ${run.reason}` : ""}`),
		h("rect", {class: `node ${stepClass(status)} ${step.on_failure ? "on-failure" : ""}`.trim(), width: WIDTH, height: HEIGHT, rx: 6}),
		h("g", {transform: "translate(12 8)"}, h("path", {class: `glyph ${stepClass(status)}`, d: GLYPHS[status] ?? GLYPHS.pending, "fill-rule": "evenodd"})),
		h("text", {class: "step-name", x: 34, y: 19}, name),
		h("text", {x: 34, y: 36}, stepWords(step, run)),
	);
}

/** @param {StepDefinition} step @param {StepRun | undefined} run */
function stepWords(step, run) {
	const waits = step.on_failure && (!run || run.status === "pending") ? "on failure" : "";
	if (waits || !run) return waits || step.kind;
	const parts = [run.elapsed_seconds !== null ? span(run.elapsed_seconds) : run.started_at && run.status === "running" ? span(age(run.started_at)) : run.status];
	if (run.items) parts.push(`${run.items.ended} of ${run.items.total}`);
	else if (run.percent !== null && run.status === "running") parts.push(`${Math.round(run.percent)} %`);
	if (run.attempts > 1) parts.push(`attempt ${run.attempts}`);
	return parts.join(" · ");
}
