// Columns of lists of jobs.

import {h} from "./dom.js";
import {added} from "./job_filter.js";
import {stringify} from "./json.js";
import {isSecret} from "./json_view.js";
import {duration, span} from "./numbers.js";
import {link} from "./router.js";
import {age} from "./times.js";
import {bar, moment, stateMark, stateName, tail} from "./widgets.js";

/** @typedef {import("./types.d.ts").Job} Job */

const MAX_PATHS = 8;
const MAX_DEPTH = 4;
const MAX_VALUE = 60;

/**
 * The payload without secrets as conditions of the search: [["shop", "acme"], ["items.0.id", "7"]].
 * @param {unknown} value
 * @param {string} [prefix]
 * @param {[string, string][]} [into]
 */
export function paths(value, prefix = "", into = []) {
	if (into.length >= MAX_PATHS) return into;
	if (value !== null && typeof value === "object") {
		for (const [key, each] of Object.entries(value)) {
			if (isSecret(key, each)) continue;
			if (prefix.split(".").length < MAX_DEPTH) paths(each, prefix ? `${prefix}.${key}` : key, into);
		}
	} else if (prefix) into.push([prefix, typeof value === "string" ? value : stringify(value)]);
	return into;
}

/** @param {Job} job */
export function waitedOrRan(job) {
	const end = job.finished_at ? (Date.parse(job.finished_at) - Date.parse(job.started_at ?? job.created_at)) / 1000 : null;
	if (end !== null) return job.started_at ? duration(end) : "–";
	if (job.state === "RUNNING" && job.started_at) return span(age(job.started_at));
	const due = job.run_at ?? job.created_at;
	return age(due) < 0 ? "not due" : span(age(due));
}

/** @param {Job} job */
export function jobState(job) {
	return stateMark(job.state, job.state === "PENDING" && job.waiting_for ? "Parked" : stateName(job.state));
}

/**
 * @param {URLSearchParams} params a column that a filter pins is left out
 * @returns {import("./widgets.js").Column<Job>[]}
 */
export function jobColumns(params) {
	const isPinned = (/** @type {string} */ key) => params.getAll(key).length === 1;
	/** @type {(import("./widgets.js").Column<Job> | null)[]} */
	const columns = [
		{title: "State", phone: "under", cell: jobState},
		isPinned("kind") ? null : {title: "Kind", phone: "title", cell: (job) => h("a", {class: "name clipped", title: job.kind, href: link("jobs", job.id)}, job.kind)},
		{title: "Id", phone: isPinned("kind") ? "title" : undefined, cell: (job) => h("a", {class: "mono soft", title: job.id, href: link("jobs", job.id)}, tail(job.id))},
		isPinned("queue") ? null : {title: "Queue", cell: (job) => h("a", {class: "clipped", title: job.queue, href: link("queues", job.queue)}, job.queue)},
		isPinned("group") ? null : {title: "Group", phone: "under-side", cell: (job) => (job.group === null ? h("span", {class: "faint"}, "–") : h("a", {class: "clipped narrow", title: job.group, href: link("jobs", null, {queue: job.queue, group: job.group})}, job.group))},
		{title: "Payload", class: "clip", phone: "below", cell: (job) => h("span", {class: "mono payload"}, paths(job.payload).map(([path, value]) => h("a", {class: "path", title: `Only jobs with payload.${path}:${value}`, href: link("jobs", null, added(params, {key: "payload", value: `${path}:${value}`}))}, h("span", {class: "faint"}, `${path}:`), value.length > MAX_VALUE ? `${value.slice(0, MAX_VALUE)}…` : value)))},
		{title: "Attempt", class: "number spare", cell: (job) => `${job.attempt}/${job.max_attempts}`},
		{title: "Priority", class: "number spare", cell: (job) => job.priority},
		{title: "Progress", class: "spare", cell: (job) => (job.state === "RUNNING" && typeof job.progress?.percent === "number" ? bar(job.progress.percent / 100, {label: `${Math.round(job.progress.percent)} %`}) : null)},
		{title: "Waited or ran", class: "number", phone: "side", cell: waitedOrRan},
		{title: "Created", class: "number faint", cell: (job) => moment(job.created_at)},
	];
	return columns.filter((each) => each !== null);
}
