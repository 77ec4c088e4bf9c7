// Code: write a program, run it in the sandbox, and see its output, verdict and resources.

import {failure, get, path, post, send} from "../api.js";
import {copy, message, toast, update} from "../app.js";
import {coloured} from "../code_colours.js";
import {h} from "../dom.js";
import {icon} from "../icons.js";
import {parse} from "../json.js";
import {count, duration, size} from "../numbers.js";
import {link} from "../router.js";
import {bar, command, empty, moment, onStore, stateMark, table, tail} from "../widgets.js";

/** @typedef {import("../types.d.ts").Job} Job */
/** @typedef {{name: string, version: string, compiled: boolean, tier: string}} Language */
/** @typedef {{stdout: string, stderr: string, exit_code: number, execution_time_ms: number, signal: number | null, verdict: string, cpu_time_ms: number | null, memory_peak_bytes: number | null, setup_ms: number, truncated: {stdout: boolean, stderr: boolean}, tier: string, compile?: {exit_code: number, stderr: string, stdout: string}}} Run */

const KEY = "jobyard.program";
const MAX_OUTPUT = 200_000;
const SHOWN_RUNS = 20;
/** @type {Record<string, string>} */
const EXAMPLES = {
	python: '# Longest Collatz chain below a limit\nimport sys\n\ndef chain(n, seen={1: 1}):\n    path = []\n    while n not in seen:\n        path.append(n)\n        n = n // 2 if n % 2 == 0 else 3 * n + 1\n    size = seen[n]\n    for step in reversed(path):\n        size += 1\n        seen[step] = size\n    return size\n\nlimit = int(sys.stdin.readline())\nbest = max(range(1, limit), key=chain)\nprint("start", best)\nprint("steps", chain(best))',
	javascript: 'const lines = require("fs").readFileSync(0, "utf8").trim().split("\\n");\nconsole.log(lines.map(Number).reduce((a, b) => a + b, 0));',
	c: '#include <stdio.h>\n\nint main(void) {\n    long sum = 0, number;\n    while (scanf("%ld", &number) == 1) sum += number;\n    printf("%ld\\n", sum);\n    return 0;\n}',
};
/** @type {[keyof Limits, string, string][]} */
const LIMITS = [["time_seconds", "time", "s"], ["memory_mb", "memory", "MB"], ["output_bytes", "output", "bytes"], ["processes", "processes", ""]];
/** @typedef {{time_seconds: number, memory_mb: number, output_bytes: number, processes: number}} Limits */

/** @returns {import("../types.d.ts").Page} */
export function open() {
	/** @type {Language[]} */
	let languages = [];
	let noLanguages = "";
	/** @type {Job[]} */
	let runs = [];
	let failedRuns = "";
	const saved = JSON.parse(localStorage.getItem(KEY) ?? "{}");
	let language = saved.language ?? "python";
	let source = saved.source ?? EXAMPLES.python;
	let input = saved.input ?? "100000\n";
	/** @type {Limits} */
	let limits = {time_seconds: 3, memory_mb: 128, output_bytes: 65536, processes: 16, ...saved.limits};
	let isEditingLimits = false;
	// Escape lets the next Tab leave the editor.
	let leavesOnTab = false;
	let isBusy = false;
	let output = "";
	let problem = "";
	/** @type {Run | null} */
	let result = null;
	let jobId = "";
	/** @type {AbortController | null} */
	let following = null;

	async function load() {
		const found = await get("languages");
		languages = found.items;
		noLanguages = found.reason ?? "";
		if (languages.length && !languages.some((each) => each.name === language)) language = languages[0]?.name ?? language;
		await loadRuns();
	}

	async function loadRuns() {
		try {
			runs = (await get(`v1/jobs?kind=execute&mine=true&page_size=${SHOWN_RUNS}`)).items;
			failedRuns = "";
		} catch (error) {
			failedRuns = message(error);
		}
		update();
	}

	async function run() {
		if (isBusy || !source.trim()) return;
		localStorage.setItem(KEY, JSON.stringify({language, source, input, limits}));
		isBusy = true;
		output = problem = "";
		result = null;
		update();
		try {
			const accepted = await post("execute", {language, source_code: source, input, limits});
			jobId = accepted.job_id;
			update();
			await follow(jobId);
		} catch (error) {
			if (!(error instanceof DOMException)) problem = message(error);
		}
		isBusy = false;
		void loadRuns();
		update();
	}

	/** Read the output as server-sent events, apart from the one event stream of the tab. @param {string} id */
	async function follow(id) {
		following = new AbortController();
		const response = await send("GET", path`jobs/${id}/output`, undefined, following.signal);
		if (!response.ok || !response.body) throw failure(response, await response.text());
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		for (;;) {
			const {value, done} = await reader.read();
			if (done) break;
			const messages = (rest + value).split("\n\n");
			rest = messages.pop() ?? "";
			messages.forEach(take);
			update();
		}
	}

	/** @param {string} text one server-sent event */
	function take(text) {
		const name = /^event: (.*)$/m.exec(text)?.[1];
		const data = /^data: (.*)$/m.exec(text)?.[1];
		if (!name || !data) return;
		const found = parse(data);
		if (name === "stdout" || name === "stderr") output = (output + found.text).slice(-MAX_OUTPUT);
		else if (name === "restart") output = "";
		else if (name === "finished") {
			result = found.result ?? null;
			if (result?.compile && result.compile.exit_code !== 0) output = result.compile.stderr || result.compile.stdout;
			problem = found.reason ?? "";
		}
	}

	async function stop() {
		try {
			await post(path`v1/jobs/${jobId}/cancel`, {reason: "stopped on the code page"});
			toast("The program is asked to stop.");
		} catch (error) {
			toast(message(error), true);
		}
	}

	/** @param {string} chosen */
	function choose(chosen) {
		if (Object.values(EXAMPLES).includes(source) && EXAMPLES[chosen]) source = EXAMPLES[chosen];
		language = chosen;
		update();
	}

	function program() {
		const lines = source.split("\n").length;
		return h(
			"section",
			{class: "card"},
			h(
				"header",
				null,
				h("h2", null, "Program"),
				h("select", {class: "end", "aria-label": "Language", value: language, onchange: (/** @type {Event} */ event) => choose(/** @type {HTMLSelectElement} */ (event.target).value)}, (languages.length ? languages : [{name: language, version: ""}]).map((each) => h("option", {key: each.name, value: each.name}, `${each.name} ${/\d+(\.\d+)*/.exec(each.version)?.[0] ?? ""}`.trim()))),
				isBusy ? h("button", {type: "button", class: "danger", key: "stop", onclick: stop}, "Stop") : h("button", {class: "primary", type: "button", key: "run", disabled: !languages.length, onclick: run}, icon("play"), "Run ", h("kbd", {class: "not-phone"}, "Ctrl ↵")),
			),
			languages.length ? null : h("div", {class: "padded"}, h("p", {class: "amber"}, noLanguages || "No live worker runs programs."), h("p", null, "Start a worker with a sandbox: ", command(onStore("jobyard worker --sandbox")))),
			h(
				"div",
				{class: "editor"},
				h("ol", {"aria-hidden": "true"}, Array.from({length: lines}, (_, i) => h("li", null, i + 1))),
				h("pre", {"aria-hidden": "true"}, coloured(source, language), "\n"),
				h("textarea", {"aria-label": "Source code", spellcheck: "false", autocapitalize: "off", value: source, oninput: (/** @type {InputEvent} */ event) => { source = /** @type {HTMLTextAreaElement} */ (event.target).value; update(); }, onkeydown: onEditorKey, onblur: () => { leavesOnTab = false; }, "aria-describedby": "editor-keys"}),
			),
			h(
				"div",
				{class: "padded form program-input"},
				h("small", {id: "editor-keys"}, h("kbd", null, "Tab"), " indents; ", h("kbd", null, "Esc"), " and then ", h("kbd", null, "Tab"), " leaves the editor."),
				h("label", null, "Input", h("textarea", {rows: 2, spellcheck: "false", value: input, oninput: (/** @type {InputEvent} */ event) => { input = /** @type {HTMLTextAreaElement} */ (event.target).value; }})),
				isEditingLimits
					? h("div", {class: "row wrap"}, LIMITS.map(([key, name, unit]) => h("label", null, `${name} ${unit}`.trim(), h("input", {inputmode: "decimal", value: String(limits[key]), oninput: (/** @type {InputEvent} */ event) => { const value = Number(/** @type {HTMLInputElement} */ (event.target).value); if (value > 0) limits = {...limits, [key]: value}; }}))), h("button", {class: "small", type: "button", onclick: () => { isEditingLimits = false; update(); }}, "Done"))
					: h("div", {class: "row wrap"}, h("span", {class: "chip"}, `time ${limits.time_seconds} s`), h("span", {class: "chip"}, `memory ${limits.memory_mb} MB`), h("span", {class: "chip"}, `output ${size(limits.output_bytes)}`), h("span", {class: "chip"}, `${limits.processes} processes`), h("span", {class: "chip"}, "no network"), h("button", {class: "small quiet", type: "button", onclick: () => { isEditingLimits = true; update(); }}, "Change limits")),
			),
		);
	}

	/** @param {KeyboardEvent} event */
	function onEditorKey(event) {
		const field = /** @type {HTMLTextAreaElement} */ (event.target);
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
			event.preventDefault();
			void run();
		} else if (event.key === "Escape") leavesOnTab = true;
		else if (event.key === "Tab" && !event.shiftKey && !leavesOnTab) {
			event.preventDefault();
			field.setRangeText("    ", field.selectionStart, field.selectionEnd, "end");
			source = field.value;
			update();
		} else if (!["Tab", "Shift"].includes(event.key)) leavesOnTab = false;
	}

	function outputCard() {
		return h(
			"section",
			{class: "card"},
			h("header", null, h("h2", null, "Output"), jobId ? h("a", {class: "end faint mono", href: link("jobs", jobId)}, tail(jobId)) : null),
			h(
				"div",
				{class: "padded stack"},
				h("pre", {class: "block output", tabindex: "0", role: "log", "aria-label": "Output of the program"}, output || (isBusy ? h("span", {class: "faint"}, jobId ? "Runs…" : "Waits for a sandbox…") : h("span", {class: "faint"}, result ? "The program wrote nothing." : "The output appears here while the program runs."))),
				h("div", {class: "row", role: "status"}, result ? verdict(result) : problem ? h("span", {class: "red"}, problem) : null),
				result ? resources(result, limits) : null,
				result ? h("div", {class: "row wrap"}, h("button", {class: "small", type: "button", onclick: () => copy(output)}, icon("copy"), "Copy output"), h("button", {class: "small", type: "button", onclick: () => copy(curl())}, "Copy as curl"), h("a", {class: "link", href: link("jobs", jobId)}, "Open the job")) : null,
			),
		);
	}

	function curl() {
		const body = JSON.stringify({language, source_code: source, input, limits}).replaceAll("'", "'\\''");
		return `curl -sS '${new URL("execute?wait=60", location.href).href}' -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '${body}'`;
	}

	return {
		title: () => [["Code"]],
		load,
		onEvent: () => false,
		close: () => following?.abort(),
		view: () => [
			h("div", {class: "columns charts", key: "program"}, program(), outputCard()),
			h(
				"section",
				{class: "card", key: "runs"},
				h("header", null, h("h2", null, "Your runs"), h("small", null, "Source and input are private: the list shows only how each run ended.")),
				failedRuns ? empty("The list of runs is not available.", failedRuns) : runs.length ? runTable(runs) : empty("No runs yet.", "Press Run to start the program above."),
			),
		],
	};
}

/** @param {string} verdict */
function stateOf(verdict) {
	if (verdict === "OK") return "COMPLETED";
	return verdict.endsWith("_LIMIT") ? "TIMEOUT" : "FAILED";
}

/** @param {Run} run */
function verdict(run) {
	const cut = run.truncated.stdout || run.truncated.stderr ? ", output cut off" : "";
	return [stateMark(stateOf(run.verdict), run.verdict, "large"), h("span", {class: "faint"}, `exit code ${run.exit_code}${run.signal ? `, signal ${run.signal}` : ""}, ${run.stderr ? `${size(new TextEncoder().encode(run.stderr).length)} on stderr` : "nothing on stderr"}${cut}`)];
}

/** @param {Run} run @param {Limits} limits */
function resources(run, limits) {
	const row = (/** @type {string} */ name, /** @type {number | null} */ used, /** @type {number} */ limit, /** @type {(value: number) => string} */ words) => [h("dt", null, name), h("dd", {class: "row"}, bar((used ?? 0) / limit), used === null ? "–" : words(used), h("span", {class: "faint"}, `of ${words(limit)}`))];
	const seconds = (/** @type {number} */ value) => duration(value);
	return h(
		"dl",
		{class: "facts"},
		row("Wall time", run.execution_time_ms / 1000, limits.time_seconds, seconds),
		row("CPU time", run.cpu_time_ms === null ? null : run.cpu_time_ms / 1000, limits.time_seconds, seconds),
		row("Peak memory", run.memory_peak_bytes, limits.memory_mb * 1048576, size),
		h("dt", null, "Output"),
		h("dd", null, size(new TextEncoder().encode(run.stdout).length), h("span", {class: "faint"}, ` of ${size(limits.output_bytes)}, ${run.truncated.stdout ? "truncated" : "not truncated"}`)),
		h("dt", null, "Setup"),
		h("dd", null, duration(run.setup_ms / 1000)),
		h("dt", null, "Sandbox"),
		h("dd", null, `tier ${run.tier}`),
	);
}

/** @param {Job[]} jobs */
function runTable(jobs) {
	const of = (/** @type {Job} */ job) => /** @type {Run | null} */ (job.result);
	return table({
		label: "Your runs", rows: jobs, key: (job) => job.id,
		columns: [
			{title: "Verdict", phone: "title", cell: (job) => { const run = of(job); return run?.verdict ? stateMark(stateOf(run.verdict), run.verdict) : stateMark(job.state); }},
			{title: "Job", cell: (job) => h("a", {class: "mono soft", href: link("jobs", job.id)}, tail(job.id))},
			{title: "Exit", class: "number", cell: (job) => of(job)?.exit_code ?? "–"},
			{title: "Wall", class: "number", phone: "side", cell: (job) => { const ms = of(job)?.execution_time_ms; return ms === undefined ? "–" : duration(ms / 1000); }},
			{title: "CPU", class: "number", cell: (job) => { const ms = of(job)?.cpu_time_ms; return typeof ms === "number" ? duration(ms / 1000) : "–"; }},
			{title: "Peak memory", class: "number", cell: (job) => size(of(job)?.memory_peak_bytes)},
			{title: "Output", class: "number", cell: (job) => { const text = of(job)?.stdout; return text === undefined ? "–" : `${count(text.length)} characters`; }},
			{title: "When", class: "number faint", phone: "under-side", cell: (job) => moment(job.created_at)},
		],
	});
}
