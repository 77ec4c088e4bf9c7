// What stands at an address that has no page, or one that the role may not see.

import {me} from "./app.js";
import {h} from "./dom.js";
import {areInScope, myEntries, seesPartsOnly} from "./navigation.js";
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
	const isOfPart = !areInScope(entry) || (entry.ofWholeQueues && seesPartsOnly());
	const needed = !areInScope(entry) ? `a token for jobs of kind ${entry.ofJobs?.kind} in the queue ${entry.ofJobs?.queue}` : isOfPart ? "a token that is not restricted to groups or kinds" : ROLES[entry.needs];
	return messagePage(entry.name, `You may not see ${entry.name}.`, `It needs ${needed}; ${name} has the role ${role}${isOfPart ? " for a part of the queues" : ""}. Log in with another token, or ask an administrator for one.`);
}

/** What a page of one thing shows, and why it may not be there. @type {Record<string, [string, string, string]>} */
const THINGS = {
	queues: ["Queue", "queue", "A queue appears with its first job, or when an application that declares it starts."],
	jobs: ["Job", "job", "It may have been deleted, by a user or because its queue keeps only so many that have ended."],
	workflows: ["Workflow run", "run", "It may have been deleted, or it is the run of a workflow function: those are under Jobs."],
};

/**
 * One thing that does not exist, or is not for this token.
 * @param {import("./navigation.js").Entry} entry
 * @param {string} name
 * @returns {Page}
 */
export function notFoundPage(entry, name) {
	const [title, noun, reason] = THINGS[entry.id] ?? [entry.name, "page", ""];
	const heading = `${title} not found`;
	const search = entry.id === "jobs" ? h("a", {class: "link", href: link("jobs", null, {text: name})}, "Search for it in payloads") : null;
	return {
		title: () => [[heading]],
		load: async () => {},
		view: () => h("section", {class: "card", key: "not-found", role: "alert"}, empty(`There is no ${noun} ${name}.`, h("p", null, `The address may be misspelt or cut off. ${reason} Or your token may not see it.`), h("p", {class: "row wrap"}, h("a", {class: "link", href: link(entry.id)}, `Go to ${entry.name}`), search))),
	};
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
