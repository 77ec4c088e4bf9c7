// Settings: tokens, the audit log, and the configuration with the origin of each value.

import {get, path, post, query, request} from "../api.js";
import {carryOut, copy, message, reload, update} from "../app.js";
import {detailWords} from "../audit_words.js";
import {ask, show} from "../dialogs.js";
import {h} from "../dom.js";
import {stringify} from "../json.js";
import {counted} from "../numbers.js";
import {link} from "../router.js";
import {empty, moment, table} from "../widgets.js";

/** @typedef {import("../audit_words.js").AuditEntry} AuditEntry */
/** @typedef {{id: string, name: string, role: string, queues: string[], groups: string[], kinds: string[], created_at: string, expires_at: string | null, last_used_at: string | null}} Token */
/** @typedef {{key: string, value: string, origin: string, is_secret?: boolean}} ConfigurationEntry */

const TABS = {tokens: "Tokens", audit: "Audit log", configuration: "Configuration"};
const ROLES = {viewer: "sees everything, changes nothing", submitter: "submits jobs, and sees and cancels its own", operator: "also changes jobs, queues, workers and schedules", admin: "also manages tokens and reads the audit log"};
const DAY = 86400;

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	let tab = tabOf(location.params);
	/** @type {Token[]} */
	let tokens = [];
	/** @type {AuditEntry[]} */
	let audit = [];
	// Read again as a whole, so that what was asked for stays.
	let auditPages = 1;
	/** @type {string | null} */
	let nextToken = null;
	/** @type {ConfigurationEntry[]} */
	let configuration = [];
	let missing = "";
	let find = "";

	async function load() {
		missing = "";
		if (tab === "tokens") tokens = (await get("v1/tokens")).items;
		else if (tab === "audit") {
			/** @type {AuditEntry[]} */
			const found = [];
			/** @type {string | null} */
			let token = null;
			for (let page = 0; page < auditPages && (page === 0 || token); page++) {
				const read = await get(`v1/audit${query({newest: true, page_size: 50, page_token: token})}`);
				found.push(...read.items);
				token = read.next_page_token ?? null;
			}
			audit = found;
			nextToken = token;
		} else {
			try {
				const found = (await get("v1/configuration")).items;
				configuration = found.map((/** @type {ConfigurationEntry} */ each) => ({...each, value: typeof each.value === "string" ? each.value : stringify(each.value)}));
			} catch (error) {
				missing = message(error);
			}
		}
	}

	async function older() {
		auditPages += 1;
		await reload();
	}

	const searchField = (/** @type {string} */ label) => h("input", {class: "end", type: "search", placeholder: label, "aria-label": label, "data-search": "", value: find, oninput: (/** @type {InputEvent} */ event) => { find = /** @type {HTMLInputElement} */ (event.target).value; update(); }});
	const fits = (/** @type {string} */ text) => text.toLowerCase().includes(find.trim().toLowerCase());

	function tokenCard() {
		const shown = tokens.filter((each) => fits(`${each.name} ${each.role}`));
		return h(
			"section",
			{class: "card", key: "tokens"},
			h("header", null, h("h2", null, counted(tokens.length, "token")), searchField("Find a token"), h("button", {class: "primary", type: "button", onclick: create}, "New token")),
			shown.length
				? table({
						label: "Tokens", rows: shown, key: (each) => each.id,
						columns: [
							{title: "Name", phone: "title", cell: (each) => h("span", {class: "name"}, each.name)},
							{title: "Role", phone: "side", cell: (each) => each.role},
							{title: "Id", cell: (each) => h("code", {class: "soft"}, each.id)},
							{title: "Restricted to", class: "fold", phone: "below", cell: (each) => h("span", {class: "soft"}, [["queues", each.queues], ["groups", each.groups], ["kinds", each.kinds]].filter(([, names]) => names?.length).map(([name, names]) => `${name} ${/** @type {string[]} */ (names).join(", ")}`).join("; ") || "not restricted")},
							{title: "Last used", class: "number faint", cell: (each) => moment(each.last_used_at)},
							{title: "Expires", class: "number faint", cell: (each) => (each.expires_at ? moment(each.expires_at) : "never")},
							{title: "Created", class: "number faint", phone: "under", cell: (each) => moment(each.created_at)},
							{title: "", name: "Actions", class: "number", phone: "under-side", cell: (each) => [h("button", {class: "small quiet", type: "button", onclick: () => rotate(each)}, "Rotate…"), h("button", {class: "small quiet danger", type: "button", onclick: () => revoke(each)}, "Revoke…")]},
						],
					})
				: empty(tokens.length ? `No token has “${find}”.` : "No tokens."),
		);
	}

	function auditCard() {
		const shown = audit.filter((each) => fits(`${each.name} ${each.action} ${each.target} ${detailWords(each)}`));
		return h(
			"section",
			{class: "card", key: "audit"},
			h("header", null, h("h2", null, "Audit log"), h("small", null, "every change, newest first"), searchField("Find a change")),
			shown.length
				? table({
						label: "Audit log", rows: shown, key: (each) => `${each.log}-${each.number}`,
						columns: [
							{title: "When", class: "faint", phone: "side", cell: (each) => moment(each.at)},
							{title: "Who", phone: "title", cell: (each) => [h("span", {class: "name"}, each.name), " ", h("span", {class: "faint"}, each.role)]},
							{title: "Action", phone: "under", cell: (each) => h("code", null, each.action)},
							{title: "Target", cell: (each) => h("span", {class: "clipped", title: each.target}, each.target)},
							{title: "Details", class: "clip", phone: "below", cell: (each) => h("span", {class: "soft", title: detailWords(each)}, detailWords(each))},
						],
					})
				: empty(audit.length ? `No change has “${find}”.` : "Nothing was changed yet."),
			nextToken ? h("p", {class: "legend"}, h("button", {class: "small", type: "button", onclick: older}, "Older")) : null,
		);
	}

	function configurationCard() {
		const shown = configuration.filter((each) => fits(`${each.key} ${each.value} ${each.origin}`));
		return h(
			"section",
			{class: "card", key: "configuration"},
			h("header", null, h("h2", null, "Configuration"), h("small", null, "of this server, with the origin of each value"), searchField("Find a key")),
			missing
				? empty("The configuration is not available.", missing)
				: !shown.length
				? empty(configuration.length ? `No key or value has “${find}”.` : "This server was started by a program, without a configuration.")
				: table({
						label: "Configuration", rows: shown, key: (each) => each.key,
						columns: [
							{title: "Key", phone: "title", cell: (each) => h("code", null, each.key)},
							{title: "Value", class: "clip", phone: "below", cell: (each) => (each.is_secret ? h("span", {class: "faint"}, "•••••• hidden") : h("code", {title: each.value}, each.value))},
							{title: "Origin", phone: "side", cell: (each) => h("span", {class: each.origin === "default" ? "faint" : undefined}, each.origin)},
						],
					}),
		);
	}

	return {
		title: () => [["Settings"]],
		load,
		onEvent: () => false,
		onParams(params) {
			tab = tabOf(params);
			find = "";
			auditPages = 1;
			void reload();
			return true;
		},
		view: () => [
			h("div", {key: "tabs"}, h("nav", {class: "tabs", "aria-label": "Settings"}, Object.entries(TABS).map(([id, name]) => h("a", {key: id, href: link("settings", null, {tab: id}), "aria-current": id === tab ? "true" : undefined}, name)))),
			tab === "tokens" ? tokenCard() : tab === "audit" ? auditCard() : configurationCard(),
		],
	};
}

/** @param {URLSearchParams} params @returns {keyof typeof TABS} */
function tabOf(params) {
	const tab = params.get("tab") ?? "";
	return tab in TABS ? /** @type {keyof typeof TABS} */ (tab) : "tokens";
}

/** @param {{name: string, token: string}} made */
function showSecret(made) {
	show(`The token ${made.name}`, () => [h("p", null, "Copy it now: it is shown only this once."), h("code", {class: "secret"}, made.token), h("button", {type: "button", class: "primary", onclick: () => copy(made.token)}, "Copy the token")]);
}

async function create() {
	const fields = {name: "", role: "operator", queues: "", groups: "", kinds: "", days: ""};
	const on = (/** @type {keyof typeof fields} */ key) => (/** @type {Event} */ event) => { fields[key] = /** @type {HTMLInputElement} */ (event.target).value; };
	const names = (/** @type {string} */ text) => text.split(",").map((each) => each.trim()).filter(Boolean);
	// A token that should expire must not live for ever because of a misspelt number.
	const hasDays = () => fields.days.trim() === "" || (Number(fields.days) > 0 && Number.isFinite(Number(fields.days)));
	/** @type {{name: string, token: string} | null} */
	let made = null;
	const isDone = await ask({
		title: "New token", confirm: "Create",
		body: () => [
			h("label", null, "Name", h("input", {required: true, value: fields.name, oninput: on("name")})),
			h("label", null, "Role", h("select", {value: fields.role, onchange: on("role")}, Object.entries(ROLES).map(([role, text]) => h("option", {value: role}, `${role}: ${text}`)))),
			h("div", {class: "two"}, h("label", null, "Only these queues", h("input", {placeholder: "all", value: fields.queues, oninput: on("queues")})), h("label", null, "Only these groups", h("input", {placeholder: "all", value: fields.groups, oninput: on("groups")}))),
			h("div", {class: "two"}, h("label", null, "Only these kinds", h("input", {placeholder: "all", value: fields.kinds, oninput: on("kinds")})), h("label", null, "Expires after days", h("input", {placeholder: "never", inputmode: "decimal", value: fields.days, oninput: on("days")}))),
			hasDays() ? null : h("p", {class: "field-error", role: "alert"}, "Days are a number above 0, or empty for a token that does not expire."),
		],
		isReady: () => fields.name.trim() !== "" && hasDays(),
		submit: async () => {
			made = await post("v1/tokens", {name: fields.name.trim(), role: fields.role, queues: names(fields.queues), groups: names(fields.groups), kinds: names(fields.kinds), ...(Number(fields.days) ? {expire_seconds: Number(fields.days) * DAY} : {})});
		},
	});
	if (isDone && made) showSecret(made);
	await reload();
}

/** @param {Token} token */
async function rotate(token) {
	/** @type {{name: string, token: string} | null} */
	let made = null;
	const isDone = await ask({
		title: `Rotate ${token.name}`, confirm: "Rotate",
		body: () => h("p", null, "The token gets a new secret. The old one is accepted for ten more minutes."),
		submit: async () => { made = await post(path`v1/tokens/${token.id}/rotate`, {overlap_seconds: 600}); },
	});
	if (isDone && made) showSecret(made);
}

/** @param {Token} token */
function revoke(token) {
	return ask({
		title: `Revoke ${token.name}`, confirm: "Revoke", isDangerous: true,
		body: () => h("p", null, "Requests and sessions with this token are rejected within a second. This cannot be undone."),
		submit: () => carryOut(() => request("DELETE", path`v1/tokens/${token.id}`), `${token.name} is revoked.`),
	});
}
