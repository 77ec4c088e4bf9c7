// Changes of jobs: which are legal, the dialogs that ask, and bulk operations with their progress.

import {ApiError, get, path, post, request} from "./api.js";
import {carryOut, perform, reload, toast} from "./app.js";
import {ask} from "./dialogs.js";
import {h} from "./dom.js";
import {parse, stringify} from "./json.js";
import {hasSecrets, payloadField} from "./json_view.js";
import {count, counted} from "./numbers.js";
import {go, link} from "./router.js";
import {now} from "./times.js";
import {bar} from "./widgets.js";

/** @typedef {import("./types.d.ts").Job} Job */
/** @typedef {import("./types.d.ts").Operation} Operation */
/** @typedef {"retry" | "cancel" | "delete" | "run_now" | "prioritise"} Action */

const POLL_MS = 400;
/** @type {Record<Action, {name: string, done: string, isDangerous: boolean, warning: string}>} */
export const ACTIONS = {
	retry: {name: "Retry", done: "retried", isDangerous: false, warning: "They run again now, with all their attempts."},
	cancel: {name: "Cancel", done: "cancelled", isDangerous: true, warning: "Waiting jobs end now; running ones are asked to stop."},
	delete: {name: "Delete", done: "deleted", isDangerous: true, warning: "They are removed with their payload, result and log. This cannot be undone."},
	run_now: {name: "Run now", done: "due now", isDangerous: false, warning: "They no longer wait for their time."},
	prioritise: {name: "Change priority", done: "changed", isDangerous: false, warning: "Higher runs first, within a group."},
};

/** @param {Job} job @returns {Action[]} */
export function legalActions(job) {
	/** @type {Action[]} */
	const found = [];
	if (["FAILED", "TIMEOUT", "CANCELLED"].includes(job.state)) found.push("retry");
	if (job.state === "PENDING" && job.run_at !== null && Date.parse(job.run_at) > now() && !job.waiting_for) found.push("run_now");
	if (job.state === "PENDING") found.push("prioritise");
	if (job.state === "PENDING" || (job.state === "RUNNING" && job.cancel_requested === null)) found.push("cancel");
	if (job.state !== "RUNNING") found.push("delete");
	return found;
}

/** @param {string} id */
export function retryJob(id) {
	return perform(() => post(path`v1/jobs/${id}/retry`), "The job runs again.");
}

/** @param {string} id */
export function runJobNow(id) {
	return perform(() => post(path`v1/jobs/${id}/run-now`), "The job is due now.");
}

/** @param {Job} job */
export function cancelJob(job) {
	let reason = "";
	return ask({
		title: `Cancel ${job.kind}`,
		confirm: "Cancel the job",
		isDangerous: true,
		body: () => [
			h("p", null, job.state === "RUNNING" ? "The running handler is asked to stop." : "The job ends now and does not start."),
			h("label", null, "Reason, shown with the job", h("input", {maxlength: 200, oninput: (/** @type {InputEvent} */ event) => { reason = /** @type {HTMLInputElement} */ (event.target).value; }})),
		],
		submit: () => carryOut(() => post(path`v1/jobs/${job.id}/cancel`, {reason}), job.state === "RUNNING" ? "The job was asked to stop." : "The job is cancelled."),
	});
}

/** @param {Job} job */
export async function deleteJob(job) {
	const isDone = await ask({
		title: `Delete ${job.kind}`,
		confirm: "Delete the job",
		isDangerous: true,
		body: () => h("p", null, "The job is removed with its payload, result and log. This cannot be undone."),
		submit: () => request("DELETE", path`v1/jobs/${job.id}`),
	});
	if (isDone) {
		toast("The job is deleted.");
		go(link("jobs"));
	}
}

/** @param {Job} job */
export function changePriority(job) {
	let text = String(job.priority);
	return ask({
		title: `Priority of ${job.kind}`,
		confirm: "Change",
		body: () => h("label", null, "Higher runs first, within a group", h("input", {inputmode: "numeric", value: text, oninput: (/** @type {InputEvent} */ event) => { text = /** @type {HTMLInputElement} */ (event.target).value; }})),
		isReady: () => /^-?\d+$/.test(text.trim()),
		submit: () => carryOut(() => post(path`v1/jobs/${job.id}/prioritise`, {priority: Number(text)}), `The priority is ${text.trim()}.`),
	});
}

/**
 * A new job, or a copy of this one whose fields can be changed.
 * @param {Job | null} from
 * @param {{kind?: string | null, queue?: string | null, group?: string | null}} [given]
 */
export async function newJob(from, given = {}) {
	const fields = {kind: from?.kind ?? given.kind ?? "", queue: from?.queue ?? given.queue ?? "", group: from?.group ?? given.group ?? "", priority: String(from?.priority ?? ""), delay: "", payload: stringify(from?.payload ?? {}, 2)};
	const change = (/** @type {keyof typeof fields} */ key) => (/** @type {InputEvent} */ event) => { fields[key] = /** @type {HTMLInputElement} */ (event.target).value; };
	const field = (/** @type {keyof typeof fields} */ key, /** @type {string} */ label, /** @type {Record<string, any>} */ more = {}) => h("label", null, label, h("input", {value: fields[key], oninput: change(key), ...more}));
	const payload = () => { try { return parse(fields.payload || "{}"); } catch { return undefined; } };
	let isShown = !hasSecrets(from?.payload);
	const show = (/** @type {Event} */ event) => {
		isShown = true;
		event.target?.dispatchEvent(new Event("input", {bubbles: true})); // the dialog draws itself again
	};
	const problem = () => {
		if (!/^(-?\d+)?$/.test(fields.priority.trim())) return "The priority is not a whole number.";
		return Number(fields.delay) >= 0 && Number.isFinite(Number(fields.delay)) ? "" : "The delay is not a number of seconds.";
	};
	/** @type {{id: string} | null} */
	let made = null;
	const isDone = await ask({
		title: from ? `Clone ${from.kind}` : "New job",
		confirm: "Submit",
		body: () => [
			from ? h("p", null, "A new job with these values. Private values are never shown, so they are not copied.") : null,
			from ? null : field("kind", "Kind", {required: true, list: "kinds"}),
			h("div", {class: "two"}, field("queue", "Queue", {placeholder: "as the kind declares"}), field("group", "Group", {placeholder: "none"})),
			h("div", {class: "two"}, field("priority", "Priority", {inputmode: "numeric", placeholder: "0"}), field("delay", "Delay in seconds", {inputmode: "decimal", placeholder: "0"})),
			payloadField({rows: 8, isShown, show, value: fields.payload, oninput: change("payload"), isInvalid: payload() === undefined}),
			payload() === undefined ? h("p", {class: "field-error"}, "The payload is not a JSON object.") : null,
			problem() ? h("p", {class: "field-error", role: "alert"}, problem()) : null,
		],
		isReady: () => fields.kind.trim() !== "" && payload() !== undefined && !problem(),
		submit: async () => {
			/** @type {Record<string, unknown>} */
			const body = {kind: fields.kind.trim(), payload: payload()};
			if (fields.queue.trim()) body.queue = fields.queue.trim();
			if (fields.group.trim()) body.group = fields.group.trim();
			if (fields.priority.trim()) body.priority = Number(fields.priority);
			if (Number(fields.delay)) body.delay_seconds = Number(fields.delay);
			if (from && from.tags.length) body.tags = from.tags;
			if (from && from.timeout_seconds !== null) body.timeout_seconds = from.timeout_seconds;
			if (from) body.max_attempts = from.max_attempts;
			made = await post("v1/jobs", body);
		},
	});
	if (isDone && made) go(link("jobs", /** @type {{id: string}} */ (made).id));
}

/**
 * Apply an action to some jobs, or to all that match a filter, after a confirmation; shows the progress.
 * @param {Action} action
 * @param {{ids?: string[], filter?: Record<string, unknown>, number: number, isCapped?: boolean, words: string, name?: string}} target the name of the action there, if it has another one
 */
export async function bulk(action, target) {
	const {done, isDangerous, warning} = ACTIONS[action];
	const name = target.name ?? ACTIONS[action].name;
	/** @type {Operation | null} */
	let operation = null;
	let priority = "0";
	let redraw = () => {};
	const number = `${count(target.number)}${target.isCapped ? " or more" : ""}`;
	const isDone = await ask({
		title: `${name}: ${number} ${target.number === 1 ? "job" : "jobs"}`,
		confirm: `${name} ${number}`,
		isDangerous,
		body: () => [
			h("p", null, `${target.words.charAt(0).toUpperCase()}${target.words.slice(1)}. ${warning}`),
			action === "prioritise" ? h("label", null, "Priority", h("input", {inputmode: "numeric", value: priority, oninput: (/** @type {InputEvent} */ event) => { priority = /** @type {HTMLInputElement} */ (event.target).value; }})) : null,
			h("span", {class: "operation", mount: (/** @type {HTMLElement} */ element) => { redraw = () => element.dispatchEvent(new Event("input", {bubbles: true})); }}, operation ? progressOf(operation, target.number) : null),
		],
		isReady: () => action !== "prioritise" || /^-?\d+$/.test(priority.trim()),
		submit: async () => {
			const what = target.ids ? {ids: target.ids} : {filter: target.filter};
			operation = await post("v1/operations", {action, ...what, ...(action === "prioritise" ? {priority: Number(priority)} : {})});
			while (operation && operation.state === "running") {
				redraw();
				await new Promise((resolve) => setTimeout(resolve, POLL_MS));
				operation = await get(path`v1/operations/${/** @type {Operation} */ (operation).id}`);
			}
			if (operation?.state === "failed") throw new ApiError(500, {detail: operation.error ?? "The operation failed."}, "");
		},
	});
	const ended = /** @type {Operation | null} */ (/** @type {unknown} */ (operation));
	if (isDone && ended) {
		toast(`${counted(ended.changed, "job")} ${done}${ended.unchanged ? `, ${count(ended.unchanged)} not in a state for it` : ""}.`);
		await reload();
	}
	return isDone;
}

/** @param {Operation} operation @param {number} number */
function progressOf(operation, number) {
	const handled = operation.changed + operation.unchanged;
	const all = Math.max(1, operation.matching ?? number);
	return [h("span", {role: "status"}, `${count(handled)} of ${count(Math.max(all, handled))}`), bar(Math.min(1, handled / all), {class: "wide"})];
}
