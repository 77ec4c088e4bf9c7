// Small parts that several pages are made of.

import {copy} from "./app.js";
import {h} from "./dom.js";
import {icon} from "./icons.js";
import {fullTime, when} from "./times.js";

/** @typedef {import("./types.d.ts").Content} Content */
/** @typedef {import("./types.d.ts").JobState} JobState */

/** @type {JobState[]} */
export const STATES = ["PENDING", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"];

/** @param {string} state */
export function stateName(state) {
	return state.charAt(0) + state.slice(1).toLowerCase();
}

/**
 * @param {string} state
 * @param {Content} [text]
 * @param {string} [extra] further classes
 */
export function stateMark(state, text = stateName(state), extra = "") {
	return h("span", {class: `state ${state.toLowerCase()} ${extra}`.trim()}, text);
}

/**
 * @param {number} share between 0 and 1
 * @param {{class?: string, label?: string}} [options]
 */
export function bar(share, options = {}) {
	const width = `${Math.round(Math.min(1, Math.max(0, share)) * 1000) / 10}%`;
	return h(
		"svg",
		{class: `bar ${options.class ?? ""}`.trim(), role: "img", "aria-label": options.label ?? `${Math.round(share * 100)} %`},
		h("rect", {width: "100%", height: "100%"}),
		h("rect", {width, height: "100%"}),
	);
}

/** @param {number | null | undefined} running @param {number | null | undefined} limit */
export function limitBar(running, limit) {
	if (running === null || running === undefined || !limit) return null;
	return bar(running / limit, {class: running >= limit ? "full" : "", label: `${running} of ${limit}`});
}

/** @param {readonly (number | null)[]} values */
export function sparkline(values) {
	const known = values.filter((each) => each !== null);
	const top = Math.max(1, ...known);
	const step = 72 / Math.max(1, values.length - 1);
	let path = "";
	let isDown = false;
	values.forEach((value, i) => {
		if (value === null) isDown = false;
		else {
			const x = (1 + i * step).toFixed(1);
			const y = (18 - (value / top) * 15).toFixed(1);
			// After a gap it rises from the ground, so that one point alone, as in the first minutes, is seen.
			path += isDown ? `L${x} ${y}` : i === 0 ? `M${x} ${y}` : `M${x} 18V${y}`;
			isDown = true;
		}
	});
	const isFlat = known.every((each) => each === 0);
	const hasGround = isFlat || known.length < values.length;
	return h(
		"svg",
		{class: "sparkline", viewBox: "0 0 74 20", "aria-hidden": "true"},
		hasGround ? h("line", {class: "grid", x1: 1, x2: 73, y1: 18, y2: 18}) : null,
		isFlat ? null : h("path", {class: "line-thin", d: path}),
	);
}

/**
 * An instant in the mode of the reader, with the full one as a tooltip.
 * @param {string | null | undefined} time
 */
export function moment(time) {
	return h("time", {datetime: time ?? "", title: fullTime(time)}, when(time));
}

/** @param {string} text @param {string} [label] */
export function copyButton(text, label = "Copy") {
	return h("button", {class: "small square quiet", type: "button", "aria-label": label, title: label, onclick: () => copy(text)}, icon("copy"));
}

/** @param {string} text a command to copy */
export function command(text) {
	return h("span", {class: "command"}, h("code", null, text), copyButton(text, "Copy the command"));
}

/**
 * A command with the store of this server: the page knows a file on the same machine, others are to be filled in.
 * @param {string} text
 */
export function onStore(text) {
	const url = document.documentElement.dataset.store;
	return `${text} --store ${url ? (/^[\w:/.-]+$/.test(url) ? url : `'${url.replaceAll("'", "'\\''")}'`) : "…"}`;
}

/**
 * What would be here, and what to do next.
 * @param {Content} title
 * @param {...Content} rest
 */
export function empty(title, ...rest) {
	return h("div", {class: "empty"}, h("strong", null, title), ...rest);
}

/**
 * The strip of numbers at the top of a page.
 * @param {{name: string, value: Content, href?: string, unit?: Content, note?: Content, class?: string}[]} items
 */
export function numberStrip(items) {
	return h(
		"dl",
		{class: "numbers card"},
		items.map((item) =>
			h(
				"div",
				{key: item.name},
				h("dt", null, item.name),
				h(
					"dd",
					{class: "value"},
					item.href ? h("a", {href: item.href, class: item.class}, item.value) : h("b", {class: item.class}, item.value),
					item.unit ? [" ", h("span", null, item.unit)] : null,
				),
				h("dd", {class: "note", title: typeof item.note === "string" ? item.note : undefined}, item.note ?? " "),
			),
		),
	);
}

/**
 * @template Row
 * @typedef {{title: Content, name?: string, class?: string, cell: (row: Row) => Content, phone?: string}} Column
 */

/**
 * A table whose rows become cards on a phone: `phone` says where a cell stands there.
 * @template Row
 * @param {{label: string, columns: Column<Row>[], rows: readonly Row[], key: (row: Row) => string, class?: string,
 *   rowClass?: (row: Row) => string, rowProps?: (row: Row) => Record<string, any>}} options
 */
export function table(options) {
	const {columns} = options;
	const cell = (/** @type {Column<Row>} */ column) => `${column.class ?? ""} ${column.phone ? `phone-${column.phone}` : "not-phone"}`.trim();
	return h(
		"div",
		{class: "scroll"},
		h(
			"table",
			{class: `cards ${options.class ?? ""}`.trim(), role: "table", "aria-label": options.label},
			h("thead", {role: "rowgroup"}, h("tr", {role: "row"}, columns.map((column) => h("th", {scope: "col", role: "columnheader", class: column.class?.replace("clip", "") || undefined}, column.title === "" ? h("span", {class: "unseen"}, column.name ?? "Actions") : column.title)))),
			h(
				"tbody",
				{role: "rowgroup"},
				options.rows.map((row) =>
					h(
						"tr",
						{key: `row-${options.key(row)}`, role: "row", class: options.rowClass?.(row) || undefined, ...options.rowProps?.(row)},
						columns.map((column) => h("td", {role: "cell", class: cell(column)}, column.cell(row))),
					),
				),
			),
		),
	);
}

/** The last characters of an id: UUIDs of the same minute begin alike. @param {string} id */
export function tail(id) {
	return `…${id.slice(-6)}`;
}
