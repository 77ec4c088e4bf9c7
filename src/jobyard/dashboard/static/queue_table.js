// The table of queues, on two pages.

import {h} from "./dom.js";
import {allWaiting, count, dueWords, duration} from "./numbers.js";
import {link} from "./router.js";
import {limitBar, sparkline, table} from "./widgets.js";

/** @typedef {import("./types.d.ts").QueueRow} QueueRow */

export const STATUS = {working: "Working", at_limit: "At its limit", paused: "Paused", no_worker: "No worker", idle: "Idle"};

/** @param {QueueRow["status"]} status */
export function statusClass(status) {
	return status === "no_worker" || status === "paused" ? "amber" : "faint";
}

/** @param {readonly QueueRow[]} queues */
export function queueTable(queues) {
	return table({
		label: "Queues",
		rows: queues,
		key: (row) => row.name,
		columns: [
			{title: "Queue", phone: "title", cell: (row) => h("a", {class: "name clipped", title: row.name, href: link("queues", row.name)}, row.name)},
			{title: "Status", phone: "under", cell: (row) => h("span", {class: statusClass(row.status)}, STATUS[row.status] ?? row.status)},
			{title: "Waiting", class: "number unit-waiting", phone: "side", cell: (row) => h("a", {title: dueWords(row), href: link("jobs", null, {queue: row.name, state: "PENDING"})}, count(allWaiting(row)))},
			{title: "Running", class: "number", cell: (row) => h("a", {href: link("jobs", null, {queue: row.name, state: "RUNNING"})}, row.max_running === null ? count(row.running) : `${count(row.running)} of ${count(row.max_running)}`)},
			{title: "", name: "Share of the limit", cell: (row) => limitBar(row.running, row.max_running)},
			{title: "Finished", class: "number", phone: "under-side", cell: (row) => [count(row.finished_per_minute), h("span", {class: "faint"}, " /min")]},
			{title: "Last hour", class: "roomy", cell: (row) => sparkline(row.sparkline ?? [])},
			{title: "Wait p95", class: "number", cell: (row) => duration(row.wait_p95_seconds)},
			{title: "Oldest", class: "number", cell: (row) => h("span", {class: row.status === "no_worker" ? "amber" : undefined}, duration(row.oldest_waiting_seconds))},
			{title: "Failed", class: "number", cell: (row) => h("a", {class: row.failed ? "red" : "faint", href: link("jobs", null, {queue: row.name, state: ["FAILED", "TIMEOUT"]})}, count(row.failed))},
		],
	});
}
