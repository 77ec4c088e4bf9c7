// Queues: all of them, with what they do and what holds them back.

import {get} from "../api.js";
import {update} from "../app.js";
import {h} from "../dom.js";
import {count, counted} from "../numbers.js";
import {queueTable} from "../queue_table.js";
import {command, empty, onStore} from "../widgets.js";

/** @typedef {import("../types.d.ts").Overview} Overview */

/** @returns {import("../types.d.ts").Page} */
export function open() {
	/** @type {Overview | null} */
	let data = null;
	let find = "";
	return {
		title: () => [["Queues"]],
		stream: "?type=queue",
		async load() {
			data = await get("v1/overview");
		},
		onEvent: (event) => event.type === "io.jobyard.queue.changed.v1",
		view() {
			if (!data) return null;
			const shown = data.queues.filter((each) => each.name.toLowerCase().includes(find.trim().toLowerCase()));
			return h(
				"section",
				{class: "card", key: "queues"},
				h(
					"header",
					null,
					h("h2", null, counted(data.queues.length, "queue")),
					data.queues_left_out ? h("small", null, `and ${count(data.queues_left_out)} more that are not shown`) : null,
					h("input", {class: "end", type: "search", placeholder: "Find a queue", "aria-label": "Find a queue", "data-search": "", value: find, oninput: (/** @type {InputEvent} */ event) => { find = /** @type {HTMLInputElement} */ (event.target).value; update(); }}),
				),
				data.queues.length === 0
					? empty("No queue has a job yet.", "A queue appears with its first job. Submit one:", command(onStore("jobyard enqueue KIND --payload '{}'")))
					: shown.length ? queueTable(shown) : empty(`No queue has “${find}” in its name.`, h("button", {class: "small", type: "button", onclick: () => { find = ""; update(); }}, "Clear")),
			);
		},
	};
}
