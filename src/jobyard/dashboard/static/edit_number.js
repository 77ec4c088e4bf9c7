// A number that is edited in place: click, number, Enter; Esc restores it.

import {perform, update} from "./app.js";
import {h} from "./dom.js";
import {icon} from "./icons.js";
import {count} from "./numbers.js";

/** What is being edited. @type {{id: string, text: string, isSaving?: boolean} | null} */
let editing = null;
/** The number whose button gets the focus back. */
let left = "";

/**
 * @param {{id: string, label: string, value: number | null, canEdit: boolean, none?: string, save: (value: number | null) => Promise<unknown>}} options
 *   `none`: the words for no limit, which an empty field means; without it a number is required.
 */
export function editNumber(options) {
	const {id, value} = options;
	const words = value === null ? (options.none ?? "none") : count(value);
	if (!options.canEdit) return h("span", null, words);
	if (editing?.id !== id) {
		return h("button", {class: "edit", type: "button", "aria-label": `${options.label}: ${words}. Edit`, mount: (/** @type {HTMLElement} */ button) => { if (left === id) { left = ""; queueMicrotask(() => button.focus()); } }, onclick: () => begin(id, value)}, words, icon("edit"));
	}
	// Read when it is saved: the field may hold more than what was drawn last.
	const draft = () => {
		const text = editing?.text.trim() ?? "";
		const number = text === "" ? null : Number(text);
		return {number, isValid: number === null ? options.none !== undefined : Number.isInteger(number) && number >= 0};
	};
	const {isValid} = draft();
	const save = async () => {
		const {number, isValid} = draft();
		const edit = editing;
		if (!isValid || edit?.id !== id || edit.isSaving) return;
		edit.isSaving = true;
		const done = `${options.label}: ${number === null ? (options.none ?? "none") : count(number)}.`;
		// What was typed stays if it could not be saved, as when the session has ended.
		const close = () => { if (editing === edit) { editing = null; left = id; } };
		if (number === value) close();
		else await perform(async () => { await options.save(number); close(); }, done);
		edit.isSaving = false;
		update();
	};
	return h(
		"span",
		{class: "edit-field"},
		h("input", {
			"aria-label": options.label, value: editing.text, inputmode: "numeric", placeholder: options.none ?? "", "aria-invalid": String(!isValid), "aria-describedby": isValid ? undefined : `${id}-problem`,
			mount: (/** @type {HTMLInputElement} */ field) => queueMicrotask(() => { field.focus(); field.select(); }),
			oninput: (/** @type {InputEvent} */ event) => { if (editing) editing.text = /** @type {HTMLInputElement} */ (event.target).value; update(); },
			onkeydown: (/** @type {KeyboardEvent} */ event) => {
				if (event.key === "Enter") void save();
				if (event.key === "Escape") { editing = null; left = id; update(); }
			},
		}),
		h("button", {class: "small primary", type: "button", disabled: !isValid, onclick: save}, "Save"),
		isValid ? h("small", null, `was ${words}`) : h("small", {class: "field-error", role: "alert", id: `${id}-problem`}, options.none === undefined ? "A whole number from 0." : `A whole number from 0, or empty for ${options.none}.`),
	);
}

/** @param {string} id @param {number | null} value */
function begin(id, value) {
	editing = {id, text: value === null ? "" : String(value)};
	update();
}
