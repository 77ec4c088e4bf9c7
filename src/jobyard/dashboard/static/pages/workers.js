// Workers: their slots, what each of them runs, and those that were lost.

import {get, path, post} from "../api.js";
import {carryOut, may, perform} from "../app.js";
import {ask} from "../dialogs.js";
import {h} from "../dom.js";
import {count, counted, size} from "../numbers.js";
import {link} from "../router.js";
import {command, empty, limitBar, moment, onStore, table, tail} from "../widgets.js";

/** @typedef {import("../types.d.ts").Worker} Worker */

const SHOWN_JOBS = 3;
const MAX_LISTED = 20; // by the API

/** @returns {import("../types.d.ts").Page} */
export function open() {
	/** @type {Worker[]} */
	let workers = [];
	return {
		title: () => [["Workers"]],
		refreshSeconds: 2,
		stream: "?type=started&type=completed&type=failed&type=queue",
		async load() {
			workers = (await get("v1/workers?jobs=true&lost=true")).items;
		},
		onEvent: () => true,
		view() {
			const live = workers.filter((each) => !each.is_lost);
			const slots = live.reduce((sum, each) => sum + each.concurrency, 0);
			// Null: not for this token, which sees a part of some queue only.
			const isKnown = live.every((each) => each.running !== null);
			const busy = live.reduce((sum, each) => sum + (each.running ?? 0), 0);
			return h(
				"section",
				{class: "card", key: "workers"},
				h("header", null, h("h2", null, counted(live.length, "worker")), h("small", null, !live.length ? "" : isKnown ? `${count(busy)} of ${counted(slots, "slot")} in use` : counted(slots, "slot")), workers.length > live.length ? h("small", {class: "amber"}, `${workers.length - live.length} lost in the last hour`) : null),
				workers.length
					? table({
							label: "Workers", class: "tall", rows: workers, key: (worker) => worker.id, rowClass: (worker) => (worker.is_lost ? "lost" : ""),
							columns: [
								{title: "Worker", phone: "title", cell: (worker) => [h("span", {class: "name"}, worker.id), h("small", {class: worker.is_lost ? "amber" : undefined}, worker.is_lost ? "Lost: its jobs were given to others" : worker.quiet ? "Quiet: takes no more jobs" : "Takes jobs")]},
								{title: "Host", class: "spare", cell: (worker) => [h("span", null, worker.host), h("small", null, `process ${worker.pid}`)]},
								{title: "Queues", class: "fold", cell: (worker) => (worker.queues.length ? worker.queues.map((queue, i) => [i ? ", " : "", h("a", {href: link("queues", queue)}, queue)]) : h("span", {class: "faint"}, "all"))},
								{title: "Slots", class: "number", phone: "side", cell: (worker) => [worker.running === null ? count(worker.concurrency) : `${count(worker.running)} of ${count(worker.concurrency)}`, handedOff(worker), unseen(worker)]},
								{title: "", name: "Share of the slots", class: "spare", cell: (worker) => limitBar(worker.running, worker.concurrency)},
								{title: "Runs now", class: "clip", phone: "below", cell: runs},
								{title: "CPU", class: "number", cell: (worker) => (typeof worker.cpu_percent === "number" ? `${Math.round(worker.cpu_percent)} %` : "–")},
								{title: "Memory", class: "number", cell: (worker) => size(worker.memory_bytes)},
								{title: "Finished", class: "number spare", cell: (worker) => [count(Object.values(worker.finished_per_minute).reduce((a, b) => a + b, 0)), h("span", {class: "faint"}, " /min")]},
								{title: "Seen", class: "number", phone: "under", cell: (worker) => h("span", {class: worker.is_lost ? "amber" : "faint"}, moment(worker.seen_at))},
								{title: "", name: "Actions", class: "number", phone: "under-side", cell: actions},
							],
						})
					: empty("No worker is running, so no job starts.", "Start one:", command(onStore("jobyard worker"))),
			);
		},
	};
}

/** @param {Worker} worker */
function runs(worker) {
	const jobs = worker.jobs ?? [];
	const hidden = worker.jobs_out_of_scope ?? 0;
	if (!jobs.length) return h("span", {class: "faint"}, hidden ? "busy with jobs that you cannot see" : worker.running ? counted(worker.running, "job") : worker.running === null ? "nothing that you can see" : "nothing");
	const more = Math.max(jobs.length, (worker.running ?? 0) - hidden) - Math.min(SHOWN_JOBS, jobs.length);
	return [jobs.slice(0, SHOWN_JOBS).map((job, i) => [i ? ", " : "", h("a", {key: job.id, href: link("jobs", job.id), title: job.id}, `${job.kind} ${tail(job.id)}`)]), more > 0 ? h("small", null, `and ${count(more)} more`) : null];
}

/** Slots that are taken by jobs out of the scope of the token.
 * @param {Worker} worker */
function unseen(worker) {
	const number = worker.jobs_out_of_scope ?? 0;
	return number ? h("small", {title: `${counted(number, "slot")} busy with jobs that you cannot see`}, `${count(number)} you cannot see`) : null;
}

/** Jobs that run elsewhere, such as in a pod, and take no slot of the worker.
 * @param {Worker} worker */
function handedOff(worker) {
	const number = (worker.jobs ?? []).filter((job) => job.is_handed_off).length;
	return number ? h("small", null, `${count(number)}${number === MAX_LISTED ? " or more" : ""} handed off`) : null;
}

/** @param {Worker} worker */
function actions(worker) {
	// Null: it also runs jobs that are out of the scope of this token.
	const isShared = worker.completed === null;
	if (!may("operate") || isShared || worker.is_lost) return null;
	const stop = () => ask({
		title: `Stop ${worker.id}`, confirm: "Stop the worker", isDangerous: true,
		body: () => h("p", null, `It takes no more jobs, finishes ${counted(worker.running ?? 0, "running job")} and exits. A supervisor may start another one.`),
		submit: () => carryOut(() => post(path`v1/workers/${worker.id}/stop`), `${worker.id} stops.`),
	});
	return [
		worker.quiet ? null : h("button", {class: "small quiet", type: "button", onclick: () => perform(() => post(path`v1/workers/${worker.id}/quiet`), `${worker.id} takes no more jobs.`)}, "Quiet"),
		h("button", {class: "small quiet danger", type: "button", onclick: stop}, "Stop…"),
	];
}
