// The palette: jump to a page, a queue, a kind or a job.

import {get} from "./api.js";
import {may} from "./app.js";
import {h, render} from "./dom.js";
import {icon} from "./icons.js";
import {myEntries} from "./navigation.js";
import {go, link} from "./router.js";

/** @typedef {{text: string, note: string, href: string, icon: import("./icons.js").IconName}} Choice */

const MAX_CHOICES = 12;
const JOB_ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/i;
/** @type {Choice[]} */
let known = [];

export function openPalette() {
	if (document.querySelector("dialog.palette")) return;
	const opener = document.activeElement;
	const dialog = document.createElement("dialog");
	dialog.className = "palette";
	dialog.setAttribute("aria-label", "Search or jump to");
	document.body.append(dialog);
	let text = "";
	let at = 0;

	const draw = () => {
		const found = choices(text);
		at = Math.min(at, Math.max(0, found.length - 1));
		render(
			dialog,
			h("input", {
				type: "search", placeholder: "Go to a page, a queue or a job id, or search jobs", "aria-label": "Go to a page, a queue or a job id, or search jobs",
				role: "combobox", "aria-expanded": "true", "aria-controls": "choices", "aria-activedescendant": found.length ? `choice-${at}` : undefined,
				oninput: (/** @type {InputEvent} */ event) => { text = /** @type {HTMLInputElement} */ (event.target).value; at = 0; draw(); },
				onkeydown: (/** @type {KeyboardEvent} */ event) => {
					const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
					if (step) { event.preventDefault(); at = (at + step + found.length) % Math.max(1, found.length); draw(); }
					const chosen = found[at];
					if (event.key === "Enter" && chosen) { event.preventDefault(); choose(chosen); }
				},
			}),
			h("ul", {class: "menu", id: "choices", role: "listbox", "aria-label": "Results"}, found.map((choice, i) =>
				h("li", {key: choice.href + choice.text, role: "presentation"}, h("a", {id: `choice-${i}`, href: choice.href, role: "option", "aria-selected": String(i === at), tabindex: "-1", onclick: () => choose(choice)}, icon(choice.icon), choice.text, h("small", null, choice.note))))),
		);
	};
	const choose = (/** @type {Choice} */ choice) => { dialog.close(); go(choice.href); };
	const leave = () => dialog.close();
	addEventListener("hashchange", leave);
	dialog.onclose = () => {
		removeEventListener("hashchange", leave);
		dialog.remove();
		if (opener instanceof HTMLElement) opener.focus();
	};
	draw();
	dialog.showModal();
	void loadKnown().then(() => { if (dialog.open) draw(); });
}

/** @param {string} text @returns {Choice[]} */
function choices(text) {
	const wanted = text.trim().toLowerCase();
	/** @type {Choice[]} */
	const pages = myEntries().map((each) => ({text: each.name, note: "page", href: link(each.id), icon: each.icon}));
	const found = [...pages, ...known].filter((each) => each.text.toLowerCase().includes(wanted)).slice(0, MAX_CHOICES - 1);
	if (JOB_ID.test(wanted)) found.unshift({text: text.trim(), note: "job", href: link("jobs", text.trim()), icon: "jobs"});
	else if (wanted) found.push({text: `Jobs with “${text.trim()}” in the payload`, note: "search", href: link("jobs", null, {text: text.trim()}), icon: "search"});
	return found;
}

async function loadKnown() {
	if (!may("watch")) return;
	const [queues, kinds, schedules] = await Promise.all(["v1/queues", "v1/kinds", "v1/schedules"].map((each) => get(each).catch(() => ({items: []}))));
	known = [
		...queues.items.map((/** @type {{name: string}} */ each) => ({text: each.name, note: "queue", href: link("queues", each.name), icon: "queues"})),
		...kinds.items.map((/** @type {{name: string}} */ each) => ({text: each.name, note: "kind", href: link("jobs", null, {kind: each.name}), icon: "jobs"})),
		...schedules.items.map((/** @type {{name: string}} */ each) => ({text: each.name, note: "schedule", href: link("schedules", null, {find: each.name}), icon: "schedules"})),
	];
}
