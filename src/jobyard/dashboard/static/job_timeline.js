// The timeline of a job, to scale: waits thin, the attempt thick, earlier attempts as marks where they ended.

import {contentWidth, h, render} from "./dom.js";
import {duration, span} from "./numbers.js";
import {now, clock} from "./times.js";

/** @typedef {import("./types.d.ts").Job} Job */
/** @typedef {import("./types.d.ts").Content} Content */

const HEIGHT = 64;
/** @type {Record<string, string>} */
export const ENDINGS = {error: "failed", timeout: "timed out", lost: "lost", quarantined: "quarantined", cancelled: "cancelled"};
/** @type {Record<string, string>} */
export const ENDING_STATES = {error: "failed", timeout: "timeout", lost: "timeout", quarantined: "failed", cancelled: "cancelled"};

export class JobTimeline {
	constructor() {
		/** @type {HTMLElement | null} */
		this.element = null;
		/** @type {Job | null} */
		this.job = null;
		this.observer = new ResizeObserver(() => this.draw());
	}

	/** @param {Job} job */
	view(job) {
		this.job = job;
		this.draw();
		return h("div", {class: "padded", opaque: true, mount: (/** @type {HTMLElement} */ element) => { this.element = element; this.observer.observe(element); queueMicrotask(() => this.draw()); }});
	}

	close() {
		this.observer.disconnect();
	}

	draw() {
		const width = contentWidth(this.element);
		if (!this.element || !this.job || width < 80) return;
		render(this.element, picture(this.job, width));
	}
}

/**
 * The numbers of the attempts in the order in which they ran: a retry lets the job count from 1 again.
 * @param {Job} job
 */
export function attemptNumbers(job) {
	let number = 0;
	let before = 0;
	const next = (/** @type {number} */ attempt) => {
		number += attempt > before ? attempt - before : attempt;
		before = attempt;
		return number;
	};
	const errors = job.errors.map((each) => next(each.attempt));
	const last = job.errors.at(-1);
	const isLast = last && job.started_at && Date.parse(last.at) >= Date.parse(job.started_at) && last.attempt === job.attempt;
	return {errors, current: isLast ? number : next(job.attempt)};
}

/** @param {Job} job */
export function extent(job) {
	const from = Date.parse(job.created_at);
	const to = job.finished_at ? Date.parse(job.finished_at) : now();
	return {from, to: Math.max(to, from + 1)};
}

/**
 * @param {Job} job
 * @param {number} width
 */
function picture(job, width) {
	const {from, to} = extent(job);
	const x = (/** @type {number} */ time) => ((Math.min(Math.max(time, from), to) - from) / (to - from)) * width;
	const last = job.attempt;
	const isRunning = job.state === "RUNNING";
	const started = job.started_at && job.attempt > 0 && (isRunning || job.finished_at) ? Date.parse(job.started_at) : null;
	const earlier = job.errors.filter((each) => started === null || each.attempt < last || Date.parse(each.at) < started);
	const numbers = attemptNumbers(job);
	const stops = [from, ...earlier.map((each) => Date.parse(each.at)), started ?? to];
	/** @type {Content[]} */
	const parts = [];
	const words = [];
	for (let i = 0; i + 1 < stops.length; i += 1) {
		const [a, b] = [x(stops[i] ?? 0), x(stops[i + 1] ?? 0)];
		const seconds = ((stops[i + 1] ?? 0) - (stops[i] ?? 0)) / 1000;
		const left = i === 0 ? a : a + 8;
		if (b - left > 1) parts.push(h("rect", {key: `wait-${i}`, class: "wait", x: left, y: 27, width: Math.max(0, b - left - 2), height: 6, rx: 3}));
		if (b - left > 60) parts.push(h("text", {key: `wait-text-${i}`, x: left + 2, y: 14}, span(seconds)));
		words.push(`${span(seconds)}${i < earlier.length ? ` until attempt ${numbers.errors[i]} ${ENDINGS[earlier[i]?.ending ?? ""] ?? "ended"}` : " of waiting"}`);
	}
	earlier.forEach((each, i) => {
		const at = Math.max(0, x(Date.parse(each.at)) - 6);
		parts.push(h("rect", {key: `end-${i}`, class: `part ${ENDING_STATES[each.ending] ?? "failed"}`, x: at, y: 20, width: 12, height: 20, rx: 3}, h("title", null, `Attempt ${numbers.errors[i]}: ${ENDINGS[each.ending] ?? each.ending}, ${clock(each.at)}`)));
	});
	if (started !== null) {
		const [a, b] = [x(started), x(to)];
		const kind = isRunning ? "running" : job.state.toLowerCase();
		const wide = Math.max(6, b - a);
		const left = Math.min(a, width - wide);
		const text = `${numbers.current} · ${(isRunning ? span : duration)((to - started) / 1000)}`;
		const isNarrow = wide < 66;
		parts.push(
			h("rect", {key: "last", class: `part ${kind}`, x: left, y: 20, width: wide, height: 20, rx: 3}),
			h("text", {key: "last-text", class: isRunning ? "accent" : "label", x: left + wide > width - 60 && isNarrow ? width : left, y: 14, "text-anchor": left + wide > width - 60 && isNarrow ? "end" : "start"}, text),
			isNarrow ? null : h("text", {key: "last-in", class: "inside", x: left + 7, y: 34}, job.state.toLowerCase()),
		);
		words.push(`attempt ${numbers.current}: ${job.state.toLowerCase()} after ${span((to - started) / 1000)}`);
	}
	return h(
		"svg",
		{class: "timeline", width, height: HEIGHT, role: "img", "aria-label": `${words.join("; ")}.`},
		h("line", {key: "ground", class: "grid", x1: 0, x2: width, y1: 46, y2: 46}),
		parts,
		h("text", {key: "from", x: 0, y: 60}, clock(from)),
		width > 360 ? h("text", {key: "middle", x: width / 2, y: 60, "text-anchor": "middle"}, clock((from + to) / 2)) : null,
		h("text", {key: "to", x: width, y: 60, "text-anchor": "end"}, job.finished_at ? clock(to) : "now"),
	);
}
