// Schedules: when they fire, how it went, and a form to make and change them.

import {get, path, post, request} from "../api.js";
import {carryOut, may, perform, update} from "../app.js";
import {ask} from "../dialogs.js";
import {h} from "../dom.js";
import {icon} from "../icons.js";
import {counted} from "../numbers.js";
import {link} from "../router.js";
import {ScheduleForm} from "../schedule_form.js";
import {inZone, until} from "../times.js";
import {command, empty, moment, table} from "../widgets.js";

/** @typedef {import("../types.d.ts").Schedule} Schedule */
/** @typedef {import("../types.d.ts").Tick} Tick */

const SHOWN_TICKS = 20;
/** Height and place of a tick of the history strip tell how it ended. @type {Record<string, [string, number, number, string]>} */
const TICKS = {
	completed: ["completed", 4, 8, "completed"], failed: ["failed", 0, 16, "failed"], timeout: ["timeout", 0, 16, "timed out"],
	running: ["running", 4, 8, "running"], pending: ["pending", 4, 8, "waiting"], cancelled: ["cancelled", 4, 8, "cancelled"],
	skipped: ["cancelled", 7, 2, "skipped"], missed: ["timeout", 13, 3, "missed"], gone: ["cancelled", 4, 8, "no longer stored"],
};

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	/** @type {Schedule[]} */
	let schedules = [];
	let find = location.params.get("find") ?? "";
	/** @type {ScheduleForm | null} */
	let form = null;

	async function load() {
		schedules = (await get(`v1/schedules?page_size=1000&history=${SHOWN_TICKS}`)).items;
	}

	/** @param {Schedule | null} schedule */
	function edit(schedule) {
		form = new ScheduleForm(schedule, () => { form = null; update(); });
		update();
	}

	/** @param {Schedule} schedule */
	function remove(schedule) {
		void ask({
			title: `Delete ${schedule.name}`, confirm: "Delete the schedule", isDangerous: true,
			body: () => h("p", null, "It fires no more. Jobs that it has made stay."),
			submit: () => carryOut(() => request("DELETE", path`v1/schedules/${schedule.name}`), `${schedule.name} is deleted.`),
		});
	}

	/** @param {Schedule} schedule */
	function pauseOrResume(schedule) {
		return perform(() => post(path`v1/schedules/${schedule.name}/${schedule.enabled ? "pause" : "resume"}`), schedule.enabled ? `${schedule.name} is paused.` : `${schedule.name} fires again.`);
	}

	/** @param {Schedule} schedule @param {Event} event */
	async function toggle(schedule, event) {
		const field = /** @type {HTMLInputElement} */ (event.target);
		// Not done: the switch shows what is.
		if ((await pauseOrResume(schedule)) === undefined) field.checked = schedule.enabled;
	}

	/** @param {Schedule} schedule */
	function actions(schedule) {
		if (!may("operate")) return null;
		return [
			schedule.origin === "managed" ? [h("button", {class: "small quiet not-phone", type: "button", onclick: () => edit(schedule)}, "Edit"), h("button", {class: "small quiet danger not-phone", type: "button", onclick: () => remove(schedule)}, "Delete…")] : null,
			h("button", {class: "small quiet only-phone", type: "button", onclick: () => pauseOrResume(schedule)}, schedule.enabled ? "Pause" : "Resume"),
			h("button", {class: "small quiet", type: "button", onclick: () => perform(() => post(path`v1/schedules/${schedule.name}/run`), (made) => `The job ${made.job_id.slice(-6)} is submitted.`)}, icon("play"), "Run"),
		];
	}

	function list() {
		const wanted = find.trim().toLowerCase();
		const shown = schedules.filter((each) => `${each.name} ${each.kind}`.toLowerCase().includes(wanted));
		const nextAt = schedules.map((each) => each.next_at).filter((each) => each !== null).sort()[0];
		return h(
			"section",
			{class: "card"},
			h(
				"header",
				null,
				h("h2", null, counted(schedules.length, "schedule")),
				nextAt ? h("small", {class: "not-phone"}, `next ${until(nextAt)}`) : null,
				h("input", {class: "end", type: "search", placeholder: "Find a schedule", "aria-label": "Find a schedule", "data-search": "", value: find, oninput: (/** @type {InputEvent} */ event) => { find = /** @type {HTMLInputElement} */ (event.target).value; update(); }}),
				may("operate") ? h("button", {class: "primary", type: "button", onclick: () => edit(null)}, "New") : null,
			),
			!schedules.length
				? empty("No schedules yet.", "Declare one in code with @yard.cron(\"0 2 * * *\"), make one here, or run:", command("jobyard cron create NAME --expression '0 2 * * *' --kind KIND"))
				: !shown.length
					? empty(`No schedule has “${find}” in its name or kind.`)
					: table({
							label: "Schedules",
							class: "tall",
							rows: shown,
							key: (each) => each.name,
							columns: [
								{title: "On", cell: (each) => (may("operate") ? h("input", {class: "switch", type: "checkbox", role: "switch", "aria-label": `${each.name} fires`, checked: each.enabled, onchange: (/** @type {Event} */ event) => toggle(each, event)}) : h("span", {class: "faint"}, each.enabled ? "on" : "off"))},
								{title: "Name", phone: "title", cell: (each) => [h("a", {class: "name clipped", title: each.name, href: link("jobs", null, {kind: each.kind})}, each.name), h("small", {title: each.origin === "managed" ? undefined : "Change it where it is declared."}, each.origin)]},
								{title: "When", class: "fold", phone: "below", cell: (each) => [h("span", null, each.in_words), h("small", {class: "mono"}, `${each.expression} · ${each.timezone}`)]},
								{title: "Next", class: "number", phone: "side", cell: next},
								{title: "Last 20 runs", phone: "under", cell: (each) => strip(each.recent ?? [])},
								{title: "", name: "Actions", class: "number", phone: "under-side", cell: actions},
							],
						}),
			schedules.length ? h("p", {class: "hints legend"}, ["completed", "failed", "timeout", "skipped", "missed"].map((each) => h("span", null, h("svg", {class: "swatch", "aria-hidden": "true"}, tickMark(each, 5)), TICKS[each]?.[3]))) : null,
		);
	}

	return {
		title: () => [["Schedules"]],
		stream: "?type=enqueued&type=completed&type=failed",
		load,
		onEvent: (event) => schedules.some((each) => each.kind === event.data?.kind),
		onKey(event) {
			if (event.key !== "Escape" || !form) return false;
			form = null;
			update();
			return true;
		},
		view: () => h("div", {class: form ? "columns" : "stack", key: "schedules"}, list(), form?.view()),
	};
}

/** @param {Schedule} schedule */
function next(schedule) {
	if (!schedule.enabled) return [h("span", null, "Paused"), h("small", null, moment(schedule.changed_at))];
	if (!schedule.next_at) return h("span", {class: "faint"}, "no more");
	const wall = inZone(schedule.next_at, schedule.timezone);
	return [h("span", null, until(schedule.next_at)), h("small", null, `${wall.day} ${wall.time}`)];
}

/** @param {Tick} tick */
function ending(tick) {
	if (tick.verdict === "skipped" || tick.verdict === "missed") return tick.verdict;
	return tick.state ? tick.state.toLowerCase() : "gone";
}

/** @param {string} kind @param {number} x */
function tickMark(kind, x) {
	const [state, y, height] = TICKS[kind] ?? ["cancelled", 4, 8];
	return h("rect", {class: state, x, y, width: 5, height, rx: 1});
}

/** @param {readonly Tick[]} recent newest first */
function strip(recent) {
	const ticks = [...recent].slice(0, SHOWN_TICKS).reverse();
	if (!ticks.length) return h("small", null, "has not fired yet");
	const failed = ticks.filter((each) => ["failed", "timeout"].includes(ending(each))).length;
	return h("svg", {class: "ticks", role: "img", "aria-label": `Last ${ticks.length} runs, ${failed} failed`}, ticks.map((tick, i) => tickMark(ending(tick), i * 7)));
}
