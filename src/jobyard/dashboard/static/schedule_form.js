// The form of a schedule: it shows the words and the next ten instants while the expression is typed.

import {get, path, post, query, request} from "./api.js";
import {message, reload, toast, update} from "./app.js";
import {h} from "./dom.js";
import {parse, stringify} from "./json.js";
import {hasSecrets, payloadField} from "./json_view.js";
import {inZone, until} from "./times.js";

/** @typedef {import("./types.d.ts").Schedule} Schedule */
/** @typedef {import("./types.d.ts").Kind} Kind */

// After typing stops.
const PREVIEW_MS = 250;
const SHOWN = 10;
const OVERLAP = {skip: "skip the new one", queue: "wait for it", allow: "run both"};
const MISSED = {once: "run once", skip: "skip them", all: "run all"};

export class ScheduleForm {
	/** @param {Schedule | null} schedule @param {() => void} onClose */
	constructor(schedule, onClose) {
		this.schedule = schedule;
		this.onClose = onClose;
		this.fields = {
			name: schedule?.name ?? "", expression: schedule?.expression ?? "0 9 * * 1-5", timezone: schedule?.timezone ?? Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC",
			kind: schedule?.kind ?? "", queue: schedule?.queue ?? "", group: schedule?.group ?? "", overlap: schedule?.overlap ?? "skip", missed: schedule?.missed ?? "once", payload: stringify(schedule?.payload ?? {}, 2),
		};
		/** @type {{in_words: string, items: string[]} | null} */
		this.preview = null;
		this.problem = "";
		this.failure = "";
		this.isPayloadShown = false;
		this.timer = 0;
		this.asked = 0;
		/** @type {Kind[]} */
		this.kinds = [];
		void this.loadKinds();
		void this.loadPreview();
	}

	async loadKinds() {
		try {
			this.kinds = (await get("v1/kinds")).items;
			if (!this.fields.kind) this.fields.kind = this.kinds[0]?.name ?? "";
			update();
		} catch {
			// The name of the kind can be typed.
		}
	}

	async loadPreview() {
		const number = ++this.asked;
		if (!this.fields.expression.trim()) {
			this.problem = "Type an expression, such as 0 9 * * 1-5 or @daily.";
			return update();
		}
		try {
			const found = await get(`v1/cron/next${query({expression: this.fields.expression.trim(), timezone: this.fields.timezone.trim(), count: SHOWN, check: true})}`);
			if (number !== this.asked) return;
			if (found.valid) this.preview = found;
			this.problem = found.message ?? "";
		} catch (error) {
			if (number !== this.asked) return;
			this.problem = message(error);
		}
		update();
	}

	/** @param {keyof ScheduleForm["fields"]} key @param {string} value */
	change(key, value) {
		this.fields[key] = value;
		if (key === "expression" || key === "timezone") {
			clearTimeout(this.timer);
			this.timer = setTimeout(() => void this.loadPreview(), PREVIEW_MS);
		}
		update();
	}

	/** @param {SubmitEvent} event */
	async submit(event) {
		event.preventDefault();
		const {name, queue, group, payload, ...rest} = this.fields;
		try {
			/** @type {Record<string, unknown>} */
			const body = {...rest, payload: parse(payload || "{}")};
			if (queue.trim()) body.queue = queue.trim();
			// Null removes the group that the schedule had.
			if (group.trim() || this.schedule) body.group = group.trim() || null;
			if (this.schedule) await request("PATCH", path`v1/schedules/${this.schedule.name}`, body);
			else await post("v1/schedules", {...body, name: name.trim()});
			toast(this.schedule ? `${this.schedule.name} is changed.` : `${name.trim()} is created.`);
			this.onClose();
			await reload();
		} catch (error) {
			this.failure = error instanceof SyntaxError ? "The payload is not JSON." : message(error);
			update();
		}
	}

	view() {
		const {fields} = this;
		const on = (/** @type {keyof ScheduleForm["fields"]} */ key) => (/** @type {Event} */ event) => this.change(key, /** @type {HTMLInputElement} */ (event.target).value);
		const choice = (/** @type {"overlap" | "missed"} */ key, /** @type {Record<string, string>} */ options) => h("select", {value: fields[key], onchange: on(key)}, Object.entries(options).map(([value, text]) => h("option", {value}, text)));
		return h(
			"section",
			{class: "card", key: `form-${this.schedule?.name ?? ""}`},
			h("header", null, h("h2", null, this.schedule ? `Edit ${this.schedule.name}` : "New schedule"), h("button", {class: "small quiet square end", type: "button", "aria-label": "Close", onclick: this.onClose}, "×")),
			h(
				"form",
				{class: "form padded", onsubmit: (/** @type {SubmitEvent} */ event) => this.submit(event)},
				this.schedule ? null : h("label", null, "Name", h("input", {required: true, value: fields.name, oninput: on("name"), mount: (/** @type {HTMLElement} */ field) => queueMicrotask(() => field.focus())})),
				h("label", null, "Cron expression", h("input", {class: "mono", required: true, spellcheck: "false", value: fields.expression, oninput: on("expression"), "aria-invalid": String(this.problem !== "")})),
				h("p", {role: "status"}, this.problem ? h("span", {class: "field-error"}, this.problem) : h("strong", null, this.preview?.in_words ?? " ")),
				h("div", {class: "two"}, h("label", null, "Time zone", h("input", {value: fields.timezone, oninput: on("timezone"), list: "zones"})), h("label", null, "Kind", this.kinds.length ? h("select", {value: fields.kind, onchange: on("kind")}, this.kinds.map((each) => h("option", {value: each.name}, each.name))) : h("input", {required: true, value: fields.kind, oninput: on("kind")}))),
				h("div", {class: "two"}, h("label", null, "If it still runs", choice("overlap", OVERLAP)), h("label", null, "If missed", choice("missed", MISSED))),
				h("div", {class: "two"}, h("label", null, "Queue", h("input", {value: fields.queue, required: this.schedule !== null, placeholder: this.schedule ? "" : "as the kind declares", oninput: on("queue")})), h("label", null, "Group", h("input", {value: fields.group, placeholder: "none", oninput: on("group")}))),
				payloadField({rows: 3, isShown: this.isPayloadShown || !hasSecrets(this.schedule?.payload), show: () => { this.isPayloadShown = true; update(); }, value: fields.payload, oninput: on("payload")}),
				this.preview && !this.problem ? h("div", null, h("small", null, `The next ten, ${fields.timezone}`), h("ol", {class: "next-runs"}, this.preview.items.map((time) => { const wall = inZone(time, fields.timezone); return h("li", {key: time}, h("span", null, `${wall.day} `, h("strong", null, wall.time)), h("span", {class: "faint"}, until(time))); }))) : null,
				this.failure ? h("p", {class: "field-error", role: "alert"}, this.failure) : null,
				h("div", {class: "row"}, h("button", {class: "primary", type: "submit", disabled: this.problem !== ""}, this.schedule ? "Save" : "Create"), h("button", {class: "quiet", type: "button", onclick: this.onClose}, "Cancel")),
				h("datalist", {id: "zones"}, Intl.supportedValuesOf("timeZone").map((zone) => h("option", {value: zone}))),
			),
		);
	}
}
