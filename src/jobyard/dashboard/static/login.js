// Logging in and out: a token opens a session, in place of the page or over it when a session has ended.

import {beginSession, endSession, get, setCsrfToken} from "./api.js";
import {isLoggedIn, live, setPrincipal} from "./app.js";
import {h, render} from "./dom.js";
import {icon} from "./icons.js";
import {setSecretNames} from "./json_view.js";
import {command, onStore} from "./widgets.js";

/** @typedef {import("./types.d.ts").Me} Me */

const WRONG = 401;

/** The principal of the session; throws an ApiError with status 401 without one. */
export async function identify() {
	/** @type {Me} */
	const me = await get("v1/me");
	setCsrfToken(me.csrf_token ?? "");
	setSecretNames(me.secret_names ?? "");
	setPrincipal(me);
	return me;
}

/** @param {string} token @returns {Promise<string>} what is wrong; empty: logged in */
async function logIn(token) {
	const response = await fetch("login", {method: "POST", body: new URLSearchParams({token}), redirect: "manual"});
	// A success redirects to a page that is not needed here; browsers hide its status.
	if (response.type === "opaqueredirect") return "";
	if (response.status === WRONG) return "The token is wrong, revoked or expired.";
	if (response.status === 429) return `Too many failed logins from this address. Try again in ${response.headers.get("retry-after") ?? "a few"} s.`;
	return response.ok ? "" : `The server answered ${response.status}. Try again.`;
}

/**
 * The form; `onDone` follows a login.
 * @param {Element} parent
 * @param {string} reason
 * @param {() => void} onDone
 */
function drawForm(parent, reason, onDone) {
	let failure = "";
	let isBusy = false;
	const draw = () =>
		render(
			parent,
			h(
				"form",
				{class: "form", onsubmit: submit},
				h("div", {class: "brand"}, icon("brand"), "jobyard"),
				h(isLoggedIn() ? "h2" : "h1", null, reason),
				h("label", null, "API token", h("input", {id: "token", name: "token", type: "password", autocomplete: "current-password", required: true, placeholder: "jy_…", "aria-describedby": failure ? "login-failure" : undefined})),
				failure ? h("p", {id: "login-failure", class: "field-error", role: "alert"}, failure) : null,
				h("button", {class: "primary", type: "submit", disabled: isBusy}, "Log in"),
				h("small", null, "No token yet? On the machine of the server, run:"),
				command(onStore("jobyard tokens create NAME --role operator")),
			),
		);
	const submit = async (/** @type {SubmitEvent} */ event) => {
		event.preventDefault();
		const field = /** @type {HTMLInputElement} */ (parent.querySelector("#token"));
		isBusy = true;
		draw();
		try {
			failure = await logIn(field.value.trim());
		} catch {
			failure = "The server does not answer. Try again.";
		}
		isBusy = false;
		draw();
		if (!failure) onDone();
		else field.focus();
	};
	draw();
	parent.querySelector("input")?.focus();
}

/** The login page. @returns {Promise<void>} resolves after a login */
export function loginPage() {
	document.title = "Log in · jobyard";
	document.body.className = "logged-out";
	const page = document.createElement("main");
	page.className = "card login";
	document.body.append(page);
	return new Promise((resolve) => {
		drawForm(page, "Log in", () => {
			page.remove();
			document.body.className = "";
			resolve();
		});
	});
}

let isAsking = false;

/** The session is over: log in again over the page, which stays as it is. @param {() => void} onDone */
export function loginDialog(onDone) {
	if (isAsking) return;
	isAsking = true;
	const dialog = document.createElement("dialog");
	dialog.setAttribute("aria-label", "Log in again");
	document.body.append(dialog);
	dialog.oncancel = (event) => event.preventDefault();
	// Browsers close a dialog at the second Escape all the same.
	dialog.onclose = () => { if (isAsking) dialog.showModal(); };
	drawForm(dialog, "Your session is over. Log in again.", () => {
		isAsking = false;
		beginSession();
		dialog.close();
		dialog.remove();
		onDone();
	});
	dialog.showModal();
}

export async function logOut() {
	live.suspend();
	await endSession().catch(() => undefined);
	location.reload();
}
