// The line of groups: one column per group, however many jobs it has: a long stack makes it taller, not wider.

import {contentWidth, h, render} from "./dom.js";
import {count} from "./numbers.js";

/** @typedef {import("./types.d.ts").Line} Line */
/** @typedef {import("./types.d.ts").LineGroup} LineGroup */
/** @typedef {import("./types.d.ts").Content} Content */

const GATE = 76;
const MIN_COLUMN = 84;
const RAIL = 148;
const HEIGHT = 250;
const BLOCK_WIDTH = 42;
const MAX_GROUPS = 24;
const SHOWN_OF_MANY = 20;
const MAX_PIPS = 20;

/**
 * Blocks of a stack: one per job up to 6, then logarithmic up to 16.
 * @param {number} waiting
 */
export function blocks(waiting) {
	if (waiting <= 6) return waiting;
	return Math.min(16, Math.round(6 + (10 * Math.log(waiting / 6)) / Math.log(1000 / 6)));
}

export class LineOfGroups {
	constructor() {
		/** @type {Line | null} */
		this.line = null;
		/** @type {HTMLElement | null} */
		this.element = null;
		this.width = 0;
		this.observer = new ResizeObserver(() => this.measure());
	}

	/** @param {Line} line */
	show(line) {
		this.line = line;
		this.draw();
	}

	view() {
		return h("figure", {class: "line scroll", opaque: true, tabindex: "0", "aria-label": "The line of groups; the table below has the same order and numbers", role: "group", mount: (/** @type {HTMLElement} */ element) => this.attach(element)});
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
		this.width = contentWidth(this.element);
		this.draw();
	}

	draw() {
		if (!this.element || !this.line || this.width < 80) return;
		const {groups} = this.line;
		const isMany = groups.length > MAX_GROUPS || this.line.left_out > 0;
		const shown = isMany ? groups.slice(0, SHOWN_OF_MANY) : groups;
		const more = groups.length - shown.length + this.line.left_out;
		const columns = shown.length + (more ? 1 : 0);
		const column = Math.min(160, Math.max(MIN_COLUMN, (this.width - GATE) / Math.max(1, columns)));
		const width = GATE + column * columns;
		const center = (/** @type {number} */ i) => GATE + column * (i + 0.5);
		const next = shown.findIndex((group) => group.turn === 1);
		render(
			this.element,
			h(
				"svg",
				{width: Math.max(width, this.width), height: HEIGHT, "aria-hidden": "true"},
				h("line", {key: "rail", class: "rail", x1: GATE - 8, x2: Math.max(width, this.width), y1: RAIL, y2: RAIL}),
				next < 0 ? null : [
					h("line", {key: "rail-next", class: "rail-next", x1: GATE - 4, x2: center(next), y1: RAIL, y2: RAIL}),
					h("path", {key: "arrow", class: "arrow", d: `M${GATE} ${RAIL - 5}L${GATE - 6} ${RAIL}L${GATE} ${RAIL + 5}`}),
				],
				h("text", {key: "gate", class: next < 0 ? "label" : "accent", x: 0, y: RAIL - 2}, this.line.paused ? "Paused" : "Next slot"),
				h("text", {key: "slots", x: 0, y: RAIL + 12}, this.line.max_running === null ? `${count(this.line.running)} running` : `${count(this.line.running)} of ${count(this.line.max_running)}`),
				shown.map((group, i) => columnOf(group, center(i), column)),
				more ? h("text", {key: "more", class: "label", x: center(shown.length), y: RAIL + 4, "text-anchor": "middle"}, `+ ${count(more)} more`) : null,
			),
		);
	}
}

/**
 * @param {LineGroup} group
 * @param {number} x
 * @param {number} width
 */
function columnOf(group, x, width) {
	const isHeld = group.turn === null;
	const isNext = group.turn === 1;
	const number = blocks(group.waiting);
	const kind = isHeld ? "held" : isNext ? "next" : "ready";
	const name = group.name ?? "no group";
	const longest = Math.floor(width / 7.2);
	return h(
		"g",
		{key: `group-${group.name ?? ""}`, class: `line-group ${kind}`, transform: `translate(${Math.round(x)} 0)`},
		h("title", null, `${name}: ${count(group.waiting)} waiting. ${group.sentence}`),
		Array.from({length: number}, (_, i) => h("rect", {key: `b${i}`, class: "block-of-line", x: -BLOCK_WIDTH / 2, y: RAIL - 22 - i * 7, width: BLOCK_WIDTH, height: 5, rx: 1})),
		h("text", {key: "count", class: "label", y: RAIL - 27 - Math.max(0, number - 1) * 7, "text-anchor": "middle"}, count(group.waiting)),
		h("circle", {key: "circle", class: "place", cy: RAIL, r: 10}),
		isHeld
			? group.status === "paused" ? h("path", {key: "sign", class: "sign", d: `M-2.5 ${RAIL - 4}v8M2.5 ${RAIL - 4}v8`}) : h("path", {key: "sign", class: "sign", d: `M-4 ${RAIL}h8`})
			: h("text", {key: "turn", class: "turn", y: RAIL + 4, "text-anchor": "middle"}, group.turn),
		h("text", {key: "name", class: "group-name", y: RAIL + 30, "text-anchor": "middle"}, name.length > longest ? `${name.slice(0, longest - 1)}…` : name),
		pips(group),
		h("text", {key: "limit", class: isNext ? "accent" : "label", y: RAIL + 74, "text-anchor": "middle"}, group.effective_limit === null ? `${count(group.running)} · no limit` : `${count(group.running)} of ${count(group.effective_limit)}`),
		h("text", {key: "why", class: isNext ? "accent" : undefined, y: RAIL + 90, "text-anchor": "middle"}, isNext ? "next" : isHeld ? group.status : ""),
	);
}

/** One pip per slot of the limit. @param {LineGroup} group @returns {Content} */
function pips(group) {
	const limit = group.effective_limit;
	if (limit === null || limit === 0) return null;
	if (limit > MAX_PIPS) {
		const width = 44;
		return [
			h("rect", {key: "pips-all", class: "pip", x: -width / 2, y: RAIL + 42, width, height: 7, rx: 2}),
			h("rect", {key: "pips-busy", class: "pip busy", x: -width / 2, y: RAIL + 42, width: Math.min(1, group.running / limit) * width, height: 7, rx: 2}),
		];
	}
	const perRow = limit > 10 ? 10 : 5;
	const step = perRow === 10 ? 7.5 : 9;
	const size = perRow === 10 ? 6 : 7;
	return Array.from({length: limit}, (_, i) => {
		const inRow = Math.min(perRow, limit);
		const x = ((i % perRow) - (inRow - 1) / 2) * step - size / 2;
		return h("rect", {key: `p${i}`, class: i < group.running ? "pip busy" : "pip", x, y: RAIL + 40 + Math.floor(i / perRow) * 10, width: size, height: 7, rx: 1.5});
	});
}
