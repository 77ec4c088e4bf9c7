// Runners: organizations with their limits, the GitHub jobs that wait and why, and the runners by state.

import {get, path, query, request} from "../api.js";
import {may, me, reload, update} from "../app.js";
import {show} from "../dialogs.js";
import {h} from "../dom.js";
import {editNumber} from "../edit_number.js";
import {identify} from "../login.js";
import {count, counted, span} from "../numbers.js";
import {go, link} from "../router.js";
import {age, clock} from "../times.js";
import {command, empty, limitBar, moment, numberStrip, stateMark, table} from "../widgets.js";

/** @typedef {{name: string, limit: number | null, own_limit: number | null, paused: boolean, running: number, starting: number, in_progress: number, waiting: number, held_back: number, blocked: number, reasons: Record<string, number>, minutes_this_month: number, jobs_this_month: number}} Organization */
/** @typedef {{max_total: number | null, max_per_org: number | null, running: number, waiting: number, in_progress: number, unserved: number, reachable: number | null, sentence: string, paused: boolean, has_manager: boolean}} Totals */
/** @typedef {{job_id: number, job_name: string, repo_full_name: string, org_name: string, labels: string[], profile: string | null, state: string, reason: {code: string, sentence: string} | null, runner_name: string | null, url: string, queued_at: string, started_at: string | null}} GitHubJob */
/** @typedef {{name: string, org_name: string, profile: string, cluster: string, state: string, since: string, detail: string}} Pod */

/** States of a runner and the glyph that stands for them. @type {Record<string, string>} */
const GLYPHS = {busy: "running", in_progress: "running", online: "completed", idle: "completed", queued: "pending", held_back: "pending", failed: "failed", lost: "timeout", completed: "completed"};
/** Why jobs of an organization wait, after their number. @type {Record<string, string>} */
const REASONS = {org_limit_reached: "at the limit of the organization", total_limit_reached: "at the limit of all runners", profile_limit_reached: "at the limit of the profile", no_profile: "with labels of no profile", held_back: "held back by GitHub", in_line: "behind others in line", next: "launched next"};
const WAITED_AMBER_SECONDS = 900;
// Rows of each list on a phone, as phone.css hides the others, and of the runners anywhere, until "Show all".
const PHONE_ROWS = 8;
const SHOWN_PODS = 20;

/**
 * @param {import("../router.js").Location} location
 * @returns {import("../types.d.ts").Page}
 */
export function open(location) {
	let org = location.params.get("org");
	/** @type {Organization[]} */
	let organizations = [];
	/** @type {Totals | null} */
	let totals = null;
	/** @type {GitHubJob[]} */
	let jobs = [];
	/** @type {Pod[]} */
	let pods = [];
	let isConfigured = true;
	/** Lists that are shown as a whole. @type {Set<string>} */
	const whole = new Set();

	async function load() {
		// The server may have been restarted with runners since the login.
		isConfigured = Boolean(me().has_runners || (await identify()).has_runners);
		if (!isConfigured) return;
		const [orgs, waiting, runners] = await Promise.all([get("v1/runners/orgs"), get(`v1/runners/jobs${query({org, page_size: 50})}`), get(`v1/runners/pods${query({org, page_size: 100})}`)]);
		organizations = orgs.items;
		totals = orgs.totals;
		jobs = waiting.items;
		pods = runners.items;
	}

	/**
	 * A card with a list, of which a phone shows the first rows.
	 * @param {string} name
	 * @param {number} rows
	 * @param {import("../types.d.ts").Content[]} content
	 * @param {Record<string, any>} [props]
	 */
	function listCard(name, rows, content, props = {}) {
		const isCut = rows > PHONE_ROWS && !whole.has(name);
		const showAll = () => { whole.add(name); update(); };
		return h("section", {class: isCut ? "card first-rows" : "card", ...props}, content, isCut ? h("div", {class: `show-all ${name === "pods" && rows > SHOWN_PODS ? "" : "only-phone"}`.trim()}, h("button", {class: "small", type: "button", onclick: showAll}, `Show all ${count(rows)}`)) : null);
	}

	/** @param {GitHubJob} job */
	async function details(job) {
		const found = await get(path`v1/runners/jobs/${job.job_id}`);
		show(`${job.repo_full_name}: ${job.job_name}`, () => [
			h("p", null, found.sentence),
			h("ul", {class: "next-runs"}, found.timeline.map((/** @type {{at: string, what: string, detail: string}} */ leg) => h("li", null, h("span", null, h("strong", null, leg.what.replace("_", " ")), leg.detail ? ` ${leg.detail}` : ""), h("span", {class: "faint"}, clock(leg.at))))),
		]);
	}

	function organizationTable() {
		return table({
			label: "Organizations", rows: organizations, key: (each) => each.name,
			columns: [
				{title: "Organization", phone: "title", cell: (each) => h("a", {class: "name", href: link("runners", null, {org: each.name})}, each.name)},
				{title: "Waiting", class: "number unit-waiting", phone: "side", cell: (each) => count(each.waiting)},
				{title: "Running", class: "number", cell: (each) => (each.limit === null ? count(each.running) : `${count(each.running)} of ${count(each.limit)}`)},
				{title: "", name: "Share of the limit", cell: (each) => limitBar(each.running, each.limit)},
				{title: "Limit", cell: (each) => h("span", {class: "row"}, editNumber({id: `org-${each.name}`, label: `Limit of ${each.name}`, value: each.limit, none: "none", canEdit: may("operate"), save: (value) => (value === null ? request("DELETE", path`v1/queues/runners/groups/${each.name}/limit`) : request("PUT", path`v1/queues/runners/groups/${each.name}/limit`, {limit: value}))}), h("small", null, each.own_limit === null ? "as for all" : "own limit"))},
				{title: "Runners", phone: "under", cell: (each) => h("span", {class: "soft"}, [each.in_progress && `${each.in_progress} busy`, each.starting && `${each.starting} starting`].filter(Boolean).join(", ") || "none")},
				{title: "Why it waits", class: "fold", phone: "below", cell: (each) => h("span", {class: each.paused ? "amber" : "faint"}, each.paused ? "Paused" : reasons(each))},
				{title: "This month", class: "number", cell: (each) => `${count(each.minutes_this_month)} min`},
			],
		});
	}

	function jobTable() {
		return table({
			label: "GitHub jobs", class: "tall", rows: jobs, key: (job) => String(job.job_id),
			columns: [
				{title: "State", phone: "under", cell: (job) => stateMark(GLYPHS[job.state] ?? "pending", job.state.replace("_", " "))},
				{title: "Job", phone: "title", cell: (job) => [h("button", {class: "link name", type: "button", onclick: () => details(job)}, job.job_name), h("small", null, job.repo_full_name)]},
				{title: "Labels", cell: (job) => h("span", {class: "clipped mono soft", title: job.labels.join(", ")}, job.labels.join(" "))},
				{title: "Profile", cell: (job) => job.profile ?? h("span", {class: "amber"}, "none")},
				{title: "Why it waits", class: "fold", phone: "below", cell: (job) => (job.runner_name ? h("span", {class: "clipped soft", title: job.runner_name}, `Runs on ${job.runner_name}`) : h("span", {class: "soft"}, job.reason?.sentence ?? ""))},
				{title: "Queued", class: "number", phone: "side", cell: (job) => h("span", {class: !job.started_at && age(job.queued_at) > WAITED_AMBER_SECONDS ? "amber" : undefined}, span(age(job.queued_at)))},
				{title: "", name: "Link", class: "number", cell: (job) => (job.url.startsWith("https://") ? h("a", {class: "link", href: job.url, rel: "noreferrer", target: "_blank"}, "GitHub") : null)},
			],
		});
	}

	function podCard() {
		/** @type {Map<string, number>} */
		const states = new Map();
		for (const pod of pods) states.set(pod.state, (states.get(pod.state) ?? 0) + 1);
		const shown = whole.has("pods") ? pods : pods.slice(0, SHOWN_PODS);
		return listCard("pods", pods.length, [
			h("header", null, h("h2", null, counted(pods.length, "runner")), h("small", {class: "end"}, [...states].map(([state, number]) => `${number} ${state}`).join(", "))),
			pods.length ? h("ul", {class: "notes"}, shown.map((pod) => h("li", {key: pod.name}, stateMark(GLYPHS[pod.state] ?? "pending", ""), h("div", null, h("span", {class: "clipped", title: pod.name}, pod.name), h("small", null, `${pod.state.replace("_", " ")} for ${span(age(pod.since))} · ${pod.profile} on ${pod.cluster}`, pod.detail ? ` · ${pod.detail}` : ""))))) : empty("No runner is up.", "One starts when a job of GitHub Actions wants it."),
		]);
	}

	return {
		title: () => (org ? [["Runners", link("runners")], [org]] : [["Runners"]]),
		refreshSeconds: 3,
		stream: "?queue=runners",
		load,
		onEvent: () => true,
		onParams(params) {
			org = params.get("org");
			void load().then(update, reload);
			return true;
		},
		view() {
			if (!isConfigured) return h("section", {class: "card", key: "none"}, empty("This server runs no GitHub runners.", "Set runners.profiles in jobyard.yaml, and GitHub Actions jobs of your organizations run in your cluster, under limits per organization. To see it work, with a GitHub and a cluster that are not real:", command("jobyard demo runners"), h("a", {class: "link", href: "docs"}, "API documentation")));
			return [
				totals && !org ? numberStrip([
					{name: "Running", value: count(totals.running), unit: totals.max_total === null ? "" : `of ${count(totals.max_total)}`, note: h("span", {title: totals.sentence}, totals.max_total === null ? "no limit in all" : totals.running >= totals.max_total ? "at the limit in all" : `${count(totals.max_total - totals.running)} more may start`)},
					{name: "Waiting", value: count(totals.waiting), note: `in ${counted(organizations.filter((each) => each.waiting).length, "organization")}`},
					{name: "Jobs in progress", value: count(totals.in_progress), note: "on GitHub"},
					{name: "Unserved", value: count(totals.unserved), class: totals.unserved ? "amber" : "faint", note: "no profile has their labels"},
					{name: "Limit per organization", value: totals.max_per_org === null ? "none" : count(totals.max_per_org), note: "unless it has its own"},
					{name: "Manager", value: totals.has_manager ? "Up" : "Down", class: totals.has_manager ? "" : "amber", note: totals.paused ? "paused" : "launches runners"},
				]) : null,
				listCard("orgs", organizations.length, [h("header", null, h("h2", null, counted(organizations.length, "organization"))), organizations.length ? organizationTable() : empty("No organization has sent a job yet.")], {key: "orgs", hidden: org !== null}),
				h(
					"div",
					{class: "columns", key: "jobs"},
					listCard("jobs", jobs.length, [h("header", null, h("h2", null, "Jobs of GitHub Actions"), h("small", null, "in the order of launch"), org ? h("button", {class: "small end", type: "button", onclick: () => go(link("runners"))}, "All organizations") : null), jobs.length ? jobTable() : empty("No job waits or runs.")]),
					podCard(),
				),
			];
		},
	};
}

/** @param {Organization} organization */
function reasons(organization) {
	const found = Object.entries(organization.reasons).sort((a, b) => b[1] - a[1]);
	return found.map(([code, number]) => `${count(number)} ${REASONS[code] ?? code.replaceAll("_", " ")}`).join(", ") || (organization.waiting ? "" : "nothing waits");
}
