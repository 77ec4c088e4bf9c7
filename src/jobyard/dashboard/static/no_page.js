// What stands at an address that has no page, or one that the role may not see.

import {me} from "./app.js";
import {h} from "./dom.js";
import {myEntries, seesPartsOnly} from "./navigation.js";
import {link} from "./router.js";
import {empty} from "./widgets.js";

/** @typedef {import("./types.d.ts").Page} Page */

/** Roles with a permission. @type {Record<import("./types.d.ts").Permission, string>} */
const ROLES = {read: "any role", watch: "the role viewer, operator or admin", submit: "the role submitter, operator or admin", operate: "the role operator or admin", administer: "the role admin", reveal: "the role submitter, operator or admin"};

/** @param {import("./router.js").Location} location @returns {Page} */
export function noSuchPage(location) {
	return messagePage("Page not found", `There is no page #/${location.page}${location.name === null ? "" : `/${location.name}`}.`, "The address may be misspelt, or of another version.");
}

/** @param {import("./navigation.js").Entry} entry @returns {Page} */
export function forbiddenPage(entry) {
	const {name, role} = me();
	const isOfPart = entry.ofWholeQueues && seesPartsOnly();
	const needed = isOfPart ? "a token that is not restricted to groups or kinds" : ROLES[entry.needs];
	return messagePage(entry.name, `You may not see ${entry.name}.`, `It needs ${needed}; ${name} has the role ${role}${isOfPart ? " for a part of the queues" : ""}. Log in with another token, or ask an administrator for one.`);
}

/** @param {string} title @param {string} heading @param {string} text @returns {Page} */
function messagePage(title, heading, text) {
	const first = myEntries()[0];
	return {
		title: () => [[title]],
		load: async () => {},
		view: () => h("section", {class: "card", key: "no-page", role: "alert"}, empty(heading, h("p", null, text), first ? h("a", {class: "link", href: link(first.id)}, `Go to ${first.name}`) : null)),
	};
}
