// Charts as SVG, drawn at their real width and again when it changes. Missing data is a gap.

import {contentWidth, h, render} from "./dom.js";
import {count, duration} from "./numbers.js";
import {clock, now, shortClock, zoneName} from "./times.js";

/** @typedef {import("./types.d.ts").ChartData} ChartData */
/** @typedef {import("./types.d.ts").Content} Content */
/** @typedef {readonly (number | null)[]} Series */

const HEIGHT = 216;
const LEFT = 48;

/**
 * A path through the points of a series, interrupted where there is no data.
 * @param {Series} values
 * @param {(i: number) => number} x
 * @param {(value: number) => number} y
 */
function pathOf(values, x, y) {
	let path = "";
	let isDown = false;
	values.forEach((value, i) => {
		if (value === null) {
			isDown = false;
			return;
		}
		const point = `${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
		// A single point between gaps is drawn as a dot.
		const isAlone = !isDown && (values[i + 1] ?? null) === null;
		path += isAlone ? `M${point}h.1` : `${isDown ? "L" : "M"}${point}`;
		isDown = true;
	});
	return path;
}

/**
 * The area below a series, one piece per stretch of data.
 * @param {Series} values
 * @param {(i: number) => number} x
 * @param {(value: number) => number} y
 * @param {number} base
 */
function areaOf(values, x, y, base) {
	let path = "";
	let from = -1;
	for (let i = 0; i <= values.length; i += 1) {
		const isPresent = (values[i] ?? null) !== null;
		if (isPresent && from < 0) from = i;
		if (!isPresent && from >= 0) {
			const points = values.slice(from, i).map((value, k) => `L${x(from + k).toFixed(1)} ${y(value ?? 0).toFixed(1)}`);
			path += `M${x(from).toFixed(1)} ${base}${points.join("")}L${x(i - 1).toFixed(1)} ${base}Z`;
			from = -1;
		}
	}
	return path;
}

/**
 * Round steps for an axis from zero, three or four of them and the lower top: [0, 500, 1000, 1500].
 * @param {number} top
 */
export function steps(top) {
	const most = Math.max(top, 3);
	const power = 10 ** Math.floor(Math.log10(most / 3));
	const units = [1, 2, 2.5, 5, 10].map((each) => each * power).filter(Number.isInteger);
	const tops = units.flatMap((unit) => [3, 4].map((number) => ({unit, number}))).filter(({unit, number}) => unit * number >= most);
	const {unit, number} = tops.reduce((best, each) => (each.unit * each.number < best.unit * best.number ? each : best), tops[0] ?? {unit: 10 * power, number: 3});
	return Array.from({length: number + 1}, (_, i) => i * unit);
}

export class Chart {
	/** @param {(data: ChartData, width: number) => {svg: Content[], label: string, left: number, right: number, bottom: number, words: (i: number) => string[], rows: [string, (i: number) => Content][]}} plot */
	constructor(plot) {
		this.plot = plot;
		/** @type {ChartData | null} */
		this.data = null;
		/** @type {HTMLElement | null} */
		this.element = null;
		this.width = 0;
		/** @type {number | null} */
		this.at = null;
		this.observer = new ResizeObserver(() => this.measure());
	}

	/** @param {ChartData} data */
	show(data) {
		this.data = ended(data);
		this.draw();
	}

	view() {
		return h("figure", {class: "chart", opaque: true, mount: (/** @type {HTMLElement} */ element) => this.attach(element)});
	}

	/** @param {HTMLElement} element */
	attach(element) {
		this.element = element;
		this.observer.observe(element);
		queueMicrotask(() => this.measure());
	}

	close() {
		this.observer.disconnect();
	}

	measure() {
		const width = contentWidth(this.element);
		if (width !== this.width) {
			this.width = width;
			this.draw();
		}
	}

	draw() {
		if (!this.element || !this.data || this.width < 80) return;
		const {data} = this;
		const {svg, label, left, right, bottom, words, rows} = this.plot(data, this.width);
		const last = Math.max(1, data.at.length - 1);
		const x = (/** @type {number} */ i) => left + (i / last) * (right - left);
		const locate = (/** @type {PointerEvent} */ event) => {
			const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
			this.point(Math.round(((event.clientX - box.left - left) / (right - left)) * last));
		};
		render(
			this.element,
			h(
				"svg",
				{
					height: HEIGHT, width: this.width, role: "img", "aria-label": label, tabindex: "0",
					onpointermove: locate, onpointerleave: () => this.point(null),
					onkeydown: (/** @type {KeyboardEvent} */ event) => this.onKey(event), onblur: () => this.point(null),
				},
				timeLabels(data, x, right),
				svg,
				this.at === null || !data.at.length ? null : this.tooltip(x(this.at), bottom, words(this.at)),
			),
			h("details", null, h("summary", null, "Show as table"), h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Values"}, this.table(rows))),
		);
	}

	/** @param {[string, (i: number) => Content][]} rows */
	table(rows) {
		const details = this.element?.querySelector("details");
		if (!details?.open || !this.data) {
			// Filled when it is opened.
			if (details) details.ontoggle = () => this.draw();
			return null;
		}
		const {at} = this.data;
		const every = Math.max(1, Math.ceil(at.length / 60));
		return h(
			"table",
			null,
			h("thead", null, h("tr", null, h("th", {scope: "col"}, "Time"), rows.map(([name]) => h("th", {scope: "col", class: "number"}, name)))),
			h("tbody", null, at.map((time, i) => (i % every ? null : h("tr", null, h("td", null, clock(time)), rows.map(([, value]) => h("td", {class: "number"}, value(i))))))),
		);
	}

	/** @param {number | null} i */
	point(i) {
		const last = (this.data?.at.length ?? 1) - 1;
		this.at = i === null ? null : Math.min(last, Math.max(0, i));
		this.draw();
	}

	/** @param {KeyboardEvent} event */
	onKey(event) {
		const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
		if (!step) return;
		event.preventDefault();
		this.point((this.at ?? (this.data?.at.length ?? 1) - 1) + step);
	}

	/**
	 * @param {number} x
	 * @param {number} bottom
	 * @param {string[]} lines
	 */
	tooltip(x, bottom, lines) {
		const width = Math.max(...lines.map((line) => line.length)) * 6.6 + 20;
		const left = Math.max(0, Math.min(x + 12, this.width - width));
		const shown = x + 12 + width > this.width ? Math.max(0, x - 12 - width) : left;
		return [
			h("line", {class: "crosshair", x1: x, x2: x, y1: 0, y2: bottom, key: "crosshair"}),
			h("g", {class: "tooltip", key: "tooltip", transform: `translate(${shown} 4)`}, h("rect", {width, height: lines.length * 16 + 12, rx: 6}), lines.map((line, i) => h("text", {x: 10, y: 18 + i * 16}, line))),
		];
	}
}

/**
 * @param {ChartData} data
 * @param {(i: number) => number} x
 * @param {number} right
 */
function timeLabels(data, x, right) {
	const number = right < 420 ? 4 : 7;
	const last = data.at.length - 1;
	if (last < 1) return [];
	const label = data.interval_seconds < 15 ? clock : shortClock;
	return Array.from({length: number}, (_, k) => {
		const i = Math.round(((k + 0.5) / number) * last);
		return h("text", {key: `time-${k}`, x: x(i), y: HEIGHT - 2, "text-anchor": "middle"}, label(data.at[i] ?? ""));
	});
}

// Processes write what they counted at least this often.
const WRITTEN_SECONDS = 60;

/** The intervals that have ended and are written: the newest one would look like a collapse. @param {ChartData} data */
function ended(data) {
	const until = now() - (data.interval_seconds + Math.min(data.interval_seconds, WRITTEN_SECONDS)) * 1000;
	const number = data.at.filter((time) => Date.parse(time) <= until).length;
	return /** @type {ChartData} */ (Object.fromEntries(Object.entries(data).map(([key, value]) => [key, Array.isArray(value) ? value.slice(0, number) : value])));
}

/** @param {Series} values @returns {number[]} */
function present(values) {
	return /** @type {number[]} */ (values.filter((each) => each !== null));
}

/** @param {ChartData} data @param {Series} values */
function perMinute(data, values) {
	return values.map((each) => (each === null ? null : (each * 60) / data.interval_seconds));
}

/** Jobs finished per minute from zero, and failures in their own strip. */
export function throughputChart() {
	return new Chart((data, width) => {
		const right = width - 6;
		const bottom = 138;
		const last = Math.max(1, data.at.length - 1);
		const finished = perMinute(data, data.finished);
		const marks = steps(Math.max(...finished.map((each) => each ?? 0)));
		const top = marks.at(-1) ?? 1;
		const x = (/** @type {number} */ i) => LEFT + (i / last) * (right - LEFT);
		const y = (/** @type {number} */ value) => bottom - (value / top) * (bottom - 8);
		const mostFailed = Math.max(1, ...data.failed.map((each) => each ?? 0));
		const total = data.failed.reduce((/** @type {number} */ sum, each) => sum + (each ?? 0), 0);
		const barWidth = Math.max(1.5, Math.min(4, (right - LEFT) / data.at.length - 1));
		const known = present(finished);
		return {
			left: LEFT, right, bottom: 194,
			label: known.length ? `Jobs finished per minute: between ${count(Math.min(...known))} and ${count(Math.max(...known))}; ${count(total)} failed.` : "Jobs finished per minute: no data yet.",
			svg: [
				axis(marks.map((mark) => [y(mark), count(mark)]), LEFT, right),
				h("path", {class: "area", key: "area", d: areaOf(finished, x, y, bottom)}),
				h("path", {class: "line-accent", key: "line", d: pathOf(finished, x, y)}),
				h("text", {key: "failed", x: LEFT - 8, y: 190, "text-anchor": "end"}, "Failed"),
				h("line", {key: "base", class: "grid", x1: LEFT, x2: right, y1: 194, y2: 194}),
				data.failed.map((value, i) => value ? h("rect", {key: `f${i}`, class: "failures", x: (x(i) - barWidth / 2).toFixed(1), y: 194 - Math.max(4, (value / mostFailed) * 30), width: barWidth, height: Math.max(4, (value / mostFailed) * 30), rx: 1}) : null),
			],
			words: (i) => [`${clock(data.at[i] ?? "")} ${zoneName()}`, finished[i] === null ? "no data" : `${count(finished[i])} finished per minute`, data.failed[i] === null ? "" : `${count(data.failed[i])} failed or timed out`].filter(Boolean),
			rows: [["Finished per minute", (i) => count(finished[i])], ["Failed", (i) => count(data.failed[i])]],
		};
	});
}

/** Percentiles of the time from due to started, on a logarithmic scale. */
export function waitChart() {
	return new Chart((data, width) => {
		const right = width - 34;
		const bottom = 194;
		const last = Math.max(1, data.at.length - 1);
		const known = present([...data.wait_p50_seconds, ...data.wait_p99_seconds]).filter((each) => each > 0);
		const low = Math.floor(Math.log10(Math.max(0.001, Math.min(0.01, ...known))));
		const high = Math.max(low + 3, Math.ceil(Math.log10(Math.max(0.01, ...known))));
		const x = (/** @type {number} */ i) => LEFT + (i / last) * (right - LEFT);
		const y = (/** @type {number} */ value) => bottom - ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (bottom - 10);
		const every = Math.ceil((high - low) / 4);
		const marks = Array.from({length: high - low + 1}, (_, i) => 10 ** (low + i)).filter((_, i) => i % every === 0);
		const series = /** @type {const} */ ([["p50", data.wait_p50_seconds, "line-thin", "label"], ["p95", data.wait_p95_seconds, "line-accent", "accent"], ["p99", data.wait_p99_seconds, "line-dashed", "label"]]);
		const ends = apart(series.map(([, values]) => { const end = values.findLast((each) => each !== null); return end === undefined || end === null ? null : y(end); }));
		const value = (/** @type {Series} */ values, /** @type {number} */ i) => duration(values[i]);
		return {
			left: LEFT, right, bottom,
			label: known.length ? `Time from due to started: ${series.map(([name, values]) => `${name} ${duration(values.findLast((each) => each !== null))}`).join(", ")}.` : "Time from due to started: no data yet.",
			svg: [
				axis(marks.map((mark) => [y(mark), scaleLabel(mark)]), LEFT, right),
				series.map(([name, values, line]) => h("path", {class: line, key: name, d: pathOf(values, x, y)})),
				series.map(([name, , , label], k) => ends[k] === null ? null : h("text", {class: label, key: `label-${name}`, x: right + 6, y: (ends[k] ?? 0) + 4}, name)),
			],
			words: (i) => [`${clock(data.at[i] ?? "")} ${zoneName()}`, ...series.map(([name, values]) => `${name} ${value(values, i)}`)],
			rows: series.map(([name, values]) => [name, (i) => value(values, i)]),
		};
	});
}

/** @param {number} seconds a power of ten */
function scaleLabel(seconds) {
	if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
	return seconds < 1000 ? `${seconds} s` : `${Math.round(seconds / 3600) || 1} h`;
}

/**
 * Labels at least 12 pixels apart.
 * @param {(number | null)[]} places
 */
function apart(places) {
	const order = places.map((place, i) => ({place, i})).filter((each) => each.place !== null).sort((a, b) => (a.place ?? 0) - (b.place ?? 0));
	const found = [...places];
	let before = -Infinity;
	for (const {place, i} of order) {
		before = Math.max(place ?? 0, before + 12);
		found[i] = before;
	}
	return found;
}

/**
 * @param {[number, string][]} marks
 * @param {number} left
 * @param {number} right
 */
function axis(marks, left, right) {
	return marks.map(([y, label], i) => [h("line", {class: "grid", key: `grid-${i}`, x1: left, x2: right, y1: y, y2: y}), h("text", {key: `mark-${i}`, x: left - 8, y: y + 4, "text-anchor": "end"}, label)]);
}
