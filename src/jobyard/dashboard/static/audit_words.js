// Entries of the audit log in words.

import {h} from "./dom.js";
import {stringify} from "./json.js";

/** @typedef {{log: string, number: number, at: string, principal: string, name: string, role: string, action: string, target: string, details: Record<string, unknown>}} AuditEntry */

/** @param {AuditEntry} entry */
export function changeWords(entry) {
	return [entry.name || entry.principal, " ", h("code", null, entry.action), entry.target ? [" ", h("strong", null, entry.target)] : null, detailWords(entry) ? [" ", h("span", {class: "faint"}, detailWords(entry))] : null];
}

/** @param {AuditEntry} entry */
export function detailWords(entry) {
	return Object.entries(entry.details ?? {}).map(([key, value]) => `${key} ${typeof value === "string" ? value : stringify(value)}`).join(", ");
}
