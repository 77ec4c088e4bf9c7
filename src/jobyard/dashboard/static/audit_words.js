// Entries of the audit log in words.

import {h} from "./dom.js";
import {stringify} from "./json.js";

/** @typedef {import("./types.d.ts").Content} Content */
/** @typedef {{log: string, number: number, at: string, principal: string, name: string, role: string, action: string, target: string, details: Record<string, unknown>}} AuditEntry */

/** What was done, before the name of what it was done to. @type {Record<string, string>} */
const VERBS = {
	"queue.pause": "paused", "queue.resume": "resumed", "queue.drain": "drained", "queue.reset": "reset the limits of", "queue.remove": "removed", "queue.configure": "set",
	"group.pause": "paused", "group.resume": "resumed", "group.limit": "set the limit of", "group.unlimit": "removed the limit of",
};

/** A change of a queue or of its group as a sentence; other entries by the name of their action. @param {AuditEntry} entry @returns {Content} */
export function changeWords(entry) {
	const who = entry.name || entry.principal;
	const verb = VERBS[entry.action];
	const target = h("strong", null, entry.action.startsWith("group.") ? entry.target.slice(entry.target.indexOf("/") + 1) : entry.target);
	const details = detailWords(entry);
	if (!verb) return [who, " ", h("code", null, entry.action), entry.target ? [" ", target] : null, details ? ` ${details}` : null];
	if (entry.action === "queue.configure") return `${who} set ${details}`;
	const limit = entry.details?.limit;
	const removed = entry.details?.removed;
	return [who, ` ${verb} `, target, limit === undefined ? null : ` to ${stringify(limit)}`, removed === undefined ? null : `: ${stringify(removed)} jobs deleted`];
}

/** @param {AuditEntry} entry */
export function detailWords(entry) {
	return Object.entries(entry.details ?? {}).map(([key, value]) => `${key} ${value === null ? "none" : typeof value === "string" ? value : stringify(value)}`).join(", ");
}
