// The pages of the dashboard: their names, addresses and permissions.

import {may, me} from "./app.js";

/** @typedef {import("./icons.js").IconName} IconName */
/** @typedef {import("./types.d.ts").Permission} Permission */
/** @typedef {import("./types.d.ts").Page} Page */
/** @typedef {import("./router.js").Location} Location */
/** @typedef {{open: (location: Location) => Page}} PageModule */

/**
 * @typedef {{
 *   id: string, name: string, icon: IconName, key?: string, needs: Permission, ofWholeQueues?: boolean, ofJobs?: {queue: string, kind: string}, onPhone?: boolean, isApart?: boolean,
 *   load: () => Promise<PageModule>, loadOne?: () => Promise<PageModule>
 * }} Entry
 */

/** @type {Entry[]} */
export const ENTRIES = [
	{id: "overview", name: "Overview", icon: "overview", key: "o", needs: "watch", ofWholeQueues: true, onPhone: true, load: () => import("./pages/overview.js")},
	{id: "queues", name: "Queues", icon: "queues", key: "q", needs: "watch", ofWholeQueues: true, onPhone: true, load: () => import("./pages/queues.js"), loadOne: () => import("./pages/queue.js")},
	{id: "jobs", name: "Jobs", icon: "jobs", key: "j", needs: "read", onPhone: true, load: () => import("./pages/jobs.js"), loadOne: () => import("./pages/job.js")},
	{id: "dead-letters", name: "Dead letters", icon: "dead-letters", key: "d", needs: "read", load: () => import("./pages/dead_letters.js")},
	{id: "schedules", name: "Schedules", icon: "schedules", key: "s", needs: "watch", onPhone: true, load: () => import("./pages/schedules.js")},
	{id: "workflows", name: "Workflows", icon: "workflows", key: "w", needs: "read", load: () => import("./pages/workflows.js"), loadOne: () => import("./pages/workflow_run.js")},
	{id: "runners", name: "Runners", icon: "runners", key: "r", needs: "watch", ofJobs: {queue: "runners", kind: "runner"}, load: () => import("./pages/runners.js")},
	{id: "code", name: "Code", icon: "code", key: "c", needs: "submit", ofJobs: {queue: "code", kind: "execute"}, load: () => import("./pages/code.js")},
	{id: "workers", name: "Workers", icon: "workers", needs: "watch", load: () => import("./pages/workers.js")},
	{id: "settings", name: "Settings", icon: "settings", needs: "administer", isApart: true, load: () => import("./pages/settings.js")},
];

/** Whether the principal sees only a part of some queue, so that no number of a whole queue is for it. */
export function seesPartsOnly() {
	return Boolean(me().groups?.length || me().kinds?.length);
}

/** Whether the jobs that the page is about are in the scope of the principal. @param {Entry} entry */
export function areInScope({ofJobs}) {
	const {queues = [], kinds = []} = me();
	return !ofJobs || ((!queues.length || queues.includes(ofJobs.queue)) && (!kinds.length || kinds.includes(ofJobs.kind)));
}

/** @param {Entry} entry */
export function isOpenToMe(entry) {
	return may(entry.needs) && areInScope(entry) && !(entry.ofWholeQueues && seesPartsOnly());
}

export function myEntries() {
	return ENTRIES.filter(isOpenToMe);
}
