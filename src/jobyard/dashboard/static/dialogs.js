// Dialogs: they ask before something changes, and give the focus back.

import {message} from "./app.js";
import {h, render} from "./dom.js";

/** @typedef {import("./types.d.ts").Content} Content */

/**
 * @typedef {{
 *   title: string, body?: () => Content, confirm: string, isDangerous?: boolean,
 *   isReady?: () => boolean, submit: () => Promise<unknown> | unknown, class?: string
 * }} DialogOptions
 */

/**
 * Ask, do it, and close; a failure stays on screen. Resolves to whether it was done.
 * @param {DialogOptions} options
 * @returns {Promise<boolean>}
 */
export function ask(options) {
	const opener = document.activeElement;
	const dialog = document.createElement("dialog");
	dialog.setAttribute("aria-label", options.title);
	document.body.append(dialog);
	let isBusy = false;
	let failure = "";
	let isDone = false;

	const draw = () =>
		render(
			dialog,
			h(
				"form",
				{method: "dialog", class: "form", onsubmit: submit, oninput: () => queueMicrotask(draw), onchange: () => queueMicrotask(draw)},
				h("h2", null, options.title),
				options.body?.(),
				failure ? h("p", {class: "field-error", role: "alert"}, failure) : null,
				h(
					"div",
					{class: "actions"},
					h("button", {type: "button", onclick: () => dialog.close()}, "Cancel"),
					h("button", {type: "submit", class: `primary ${options.isDangerous ? "danger" : ""}`.trim(), disabled: isBusy || options.isReady?.() === false}, options.confirm),
				),
			),
		);
	const submit = async (/** @type {SubmitEvent} */ event) => {
		event.preventDefault();
		if (isBusy || options.isReady?.() === false) return;
		isBusy = true;
		failure = "";
		draw();
		try {
			await options.submit();
			isDone = true;
			dialog.close();
		} catch (error) {
			failure = message(error);
		}
		isBusy = false;
		draw();
	};
	// Of a page that was left, as with the back button.
	const leave = () => { if (!isBusy) dialog.close(); };
	addEventListener("hashchange", leave);
	draw();
	dialog.showModal();
	return new Promise((resolve) => {
		dialog.onclose = () => {
			removeEventListener("hashchange", leave);
			dialog.remove();
			if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
			resolve(isDone);
		};
	});
}

/**
 * Show something until it is closed.
 * @param {string} title
 * @param {() => Content} body
 */
export function show(title, body) {
	const opener = document.activeElement;
	const dialog = document.createElement("dialog");
	dialog.setAttribute("aria-label", title);
	document.body.append(dialog);
	render(dialog, h("div", null, h("h2", null, title), body(), h("div", {class: "actions"}, h("button", {type: "button", onclick: () => dialog.close()}, "Close"))));
	const leave = () => dialog.close();
	addEventListener("hashchange", leave);
	dialog.onclose = () => {
		removeEventListener("hashchange", leave);
		dialog.remove();
		if (opener instanceof HTMLElement) opener.focus();
	};
	dialog.showModal();
}
