// Dead letters: jobs that used up their attempts, grouped by kind and error.

import {get, query} from "../api.js";
import {may, reload, update} from "../app.js";
import {h} from "../dom.js";
import {icon} from "../icons.js";
import {bulk} from "../job_actions.js";
import {count, counted} from "../numbers.js";
import {go, link} from "../router.js";
import {empty, moment, table} from "../widgets.js";

/** @typedef {import("../types.d.ts").DeadGroup} DeadGroup */
/** @typedef {import("../job_actions.js").Action} Action */

const STATES = ["FAILED", "TIMEOUT"];

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	const queue = location.params.get("queue");
	/** @type {DeadGroup[]} */
	let groups = [];
	let examined = 0;
	// Read again as a whole, so that what was asked for stays.
	let pages = 1;
	/** @type {string | null} */
	let nextToken = null;
	let find = location.params.get("find") ?? "";

	async function load() {
		/** @type {DeadGroup[]} */
		const found = [];
		let number = 0;
		/** @type {string | null} */
		let token = null;
		for (let page = 0; page < pages && (page === 0 || token); page++) {
			const read = await get(`v1/dead-letters/groups${query({queue, page_token: token})}`);
			for (const group of read.items) merge(found, group);
			number += read.examined;
			token = read.next_page_token ?? null;
		}
		groups = found.sort((a, b) => b.count - a.count);
		examined = number;
		nextToken = token;
	}

	async function loadOlder() {
		pages += 1;
		await reload();
	}

	/** @param {DeadGroup[]} groups @param {DeadGroup} group */
	function merge(groups, group) {
		const same = groups.find((each) => each.kind === group.kind && each.error === group.error);
		if (!same) groups.push(group);
		else {
			same.count += group.count;
			same.first_at = group.first_at;
			same.queues = [...new Set([...same.queues, ...group.queues])];
		}
	}

	/** @param {DeadGroup} group */
	const filter = (group) => ({kind: group.kind, state: STATES, error: group.error, ...(queue ? {queue} : {})});
	/** @param {Action} action @param {DeadGroup} group */
	const change = (action, group) => bulk(action, {filter: filter(group), number: group.count, name: action === "retry" ? "Redrive" : undefined, isCapped: nextToken !== null, words: `all dead letters of ${group.kind} with “${group.error}”`});

	/** @param {DeadGroup} group */
	function actions(group) {
		if (!may("operate")) return null;
		return [
			h("button", {class: "small quiet", type: "button", onclick: () => change("retry", group)}, icon("retry"), "Redrive…"),
			h("button", {class: "small quiet danger not-phone", type: "button", onclick: () => change("delete", group)}, "Delete…"),
		];
	}

	return {
		title: () => [["Dead letters"]],
		stream: "?type=failed&type=queue",
		load,
		onEvent: (event) => event.type === "io.jobyard.job.failed.v1",
		view() {
			const wanted = find.trim().toLowerCase();
			const shown = groups.filter((each) => `${each.kind} ${each.error}`.toLowerCase().includes(wanted));
			const total = groups.reduce((sum, each) => sum + each.count, 0);
			return h(
				"section",
				{class: "card", key: "groups"},
				h(
					"header",
					null,
					h("h2", null, counted(total, "dead letter")),
					h("small", null, `in ${counted(groups.length, "group")} by kind and error`, nextToken ? `, of the newest ${count(examined)}` : ""),
					queue ? h("span", {class: "chip"}, h("span", null, `queue:${queue}`), h("button", {type: "button", "aria-label": "Remove the filter", onclick: () => go(link("dead-letters"))}, "×")) : null,
					h("input", {class: "end", type: "search", placeholder: "Find a kind or error", "aria-label": "Find a kind or error", "data-search": "", value: find, oninput: (/** @type {InputEvent} */ event) => { find = /** @type {HTMLInputElement} */ (event.target).value; update(); }}),
				),
				!groups.length
					? empty("No dead letters.", "A job that fails in all its attempts comes here. Nothing is lost: you can redrive it.")
					: !shown.length
						? empty(`No kind or error has “${find}”.`)
						: table({
								label: "Dead letters by kind and error",
								class: "tall",
								rows: shown,
								key: (group) => `${group.kind}\0${group.error}`,
								columns: [
									{title: "Kind", phone: "title", cell: (group) => h("a", {class: "name clipped", title: group.kind, href: link("jobs", null, {kind: group.kind, state: STATES, ...(queue ? {queue} : {})})}, group.kind)},
									{title: "Error", class: "clip", phone: "below", cell: (group) => [h("a", {class: "red", title: group.sample_error, href: link("jobs", null, filter(group))}, group.error || "no message"), group.error.endsWith(group.sample_error) ? null : h("small", {title: group.sample_error}, `for example ${group.sample_error}`)]},
									{title: "Count", class: "number", phone: "side", cell: (group) => h("a", {href: link("jobs", null, filter(group))}, count(group.count))},
									{title: "First", class: "number faint", cell: (group) => moment(group.first_at)},
									{title: "Last", class: "number faint", phone: "under", cell: (group) => h("a", {href: link("jobs", group.newest_job_id)}, moment(group.last_at))},
									{title: "Queues", cell: (group) => group.queues.map((each, i) => [i ? ", " : "", h("a", {href: link("queues", each)}, each)])},
									{title: "", name: "Actions", class: "number", phone: "under-side", cell: actions},
								],
							}),
				nextToken ? h("p", {class: "legend"}, h("button", {class: "small", type: "button", onclick: loadOlder}, `Count older ones too`)) : null,
			);
		},
	};
}
