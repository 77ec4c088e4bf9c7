// Responses of the API, as far as the dashboard reads them. Checked by tsc; never sent to a browser.

export type Content = import("./dom.js").Content;
export type LiveEvent = import("./live.js").LiveEvent;
export type JobState = "PENDING" | "RUNNING" | "COMPLETED" | "FAILED" | "TIMEOUT" | "CANCELLED";
export type Permission = "read" | "watch" | "submit" | "operate" | "administer" | "reveal";

/** One page of the dashboard, from the moment it opens until another one does. */
export interface Page {
	title: () => [string, string?][];
	load: () => Promise<void>;
	view: () => Content;
	/** The query of the event stream; undefined: queues and totals. */
	stream?: string;
	/** Whether what the page shows must be loaded again because of this event. */
	onEvent?: (event: LiveEvent) => boolean;
	/** Whether the page used this key. */
	onKey?: (event: KeyboardEvent) => boolean;
	/** Other parameters of the same page: true if the page can show them without being opened again. */
	onParams?: (params: URLSearchParams) => boolean;
	close?: () => void;
	/** How old the page may become without an event. */
	refreshSeconds?: number;
}

export interface Me {
	id: string;
	name: string;
	role: "viewer" | "submitter" | "operator" | "admin";
	permissions: Permission[];
	csrf_token?: string;
	session_expires_at?: string;
	version?: string;
	environment?: string;
	store?: string;
	queues?: string[];
	groups?: string[];
	kinds?: string[];
	has_runners?: boolean;
	secret_names?: string;
}

export interface Progress {
	percent: number | null;
	message: string;
	data?: unknown;
	at?: string;
}

export interface AttemptError {
	attempt: number;
	ending: string;
	message: string;
	at: string;
	type: string | null;
	traceback: string | null;
	worker: string | null;
}

export interface Job {
	id: string;
	kind: string;
	queue: string;
	group: string | null;
	priority: number;
	state: JobState;
	payload: unknown;
	attempt: number;
	max_attempts: number;
	deaths: number;
	timeout_seconds: number | null;
	backoff: {type: string; seconds?: number | number[]; base_seconds?: number; factor?: number; max_seconds?: number};
	unique_key: string | null;
	tags: string[];
	submitted_by: string | null;
	created_at: string;
	run_at: string | null;
	started_at: string | null;
	finished_at: string | null;
	worker: string | null;
	external_id: string | null;
	waiting_for: string | null;
	cancel_requested: string | null;
	progress: Progress | null;
	result: unknown;
	reason: string | null;
	errors: AttemptError[];
	log?: {at: string; level: string; message: string}[];
	steps?: {name: string; status: string; attempt: number; started_at: string | null; finished_at: string | null}[];
	timeline?: {at: string; what: string; detail: string}[];
	private_payload?: boolean;
}

export interface QueueSettings {
	max_running: number | null;
	max_per_group: number | null;
	max_waiting: number | null;
	max_waiting_per_group: number | null;
	keep_completed: number;
	keep_failed: number;
	keep_completed_seconds: number;
	keep_failed_seconds: number;
	keep_at_most: number;
}

export interface Queue {
	name: string;
	paused: boolean;
	settings: QueueSettings;
	waiting: number | null;
	delayed: number | null;
	running: number | null;
	completed: number | null;
	failed: number | null;
	cancelled: number | null;
	finished_per_minute: number | null;
	settings_origin: string | null;
	declared_settings: QueueSettings | null;
}

export interface QueueRow {
	name: string;
	status: "working" | "at_limit" | "paused" | "no_worker" | "idle";
	paused: boolean;
	waiting: number | null;
	delayed: number | null;
	running: number | null;
	max_running: number | null;
	finished_per_minute: number | null;
	failed: number | null;
	completed: number | null;
	cancelled: number | null;
	failed_last_hour?: number | null;
	oldest_waiting_seconds: number | null;
	wait_p95_seconds: number | null;
	sparkline: (number | null)[];
}

export interface Attention {
	code: string;
	level: "red" | "amber";
	sentence: string;
	command: string | null;
	target: {page: string; name: string | null} | null;
	action: {method: string; path: string; label: string} | null;
}

export interface Overview {
	at: string;
	finished_per_minute: number;
	waiting: number;
	delayed: number;
	running: number;
	slots: number;
	failed_last_hour: number;
	finished_last_hour: number;
	failed: number;
	oldest_waiting: {queue: string; since: string; seconds: number; reason: string; sentence: string; job_id?: string} | null;
	wait_p50_seconds: number | null;
	wait_p95_seconds: number | null;
	wait_p99_seconds: number | null;
	workers: {live: number; quiet: number; lost: number};
	queues: QueueRow[];
	queues_left_out: number;
	workflows: number;
	runners: number | null;
	attention: Attention[];
}

export interface ChartData {
	range: string;
	interval_seconds: number;
	at: string[];
	finished: (number | null)[];
	failed: (number | null)[];
	wait_p50_seconds: (number | null)[];
	wait_p95_seconds: (number | null)[];
	wait_p99_seconds: (number | null)[];
}

export interface LineGroup {
	name: string | null;
	place: number;
	turn: number | null;
	waiting: number;
	delayed: number;
	running: number;
	limit: number | null;
	effective_limit: number | null;
	limit_origin: "own" | "queue" | "none";
	paused: boolean;
	status: "next" | "ready" | "full" | "blocked" | "paused" | "held";
	sentence: string;
}

export interface Line {
	queue: string;
	paused: boolean;
	running: number;
	max_running: number | null;
	room: number | null;
	groups: LineGroup[];
	left_out: number;
	next_group: string | null;
}

export interface Worker {
	id: string;
	host: string;
	pid: number;
	queues: string[];
	concurrency: number;
	running: number | null;
	completed: number | null;
	quiet: boolean;
	started_at: string;
	seen_at: string;
	finished_per_minute: Record<string, number>;
	kinds: string[] | null;
	memory_bytes?: number | null;
	cpu_percent?: number | null;
	is_lost?: boolean;
	jobs?: {id: string; kind: string; queue: string; group: string | null; started_at: string; percent: number | null; is_handed_off: boolean}[];
	jobs_out_of_scope?: number | null;
}

export interface Tick {
	at: string;
	verdict: string;
	job_id: string | null;
	state: JobState | null;
	count: number;
}

export interface Schedule {
	name: string;
	expression: string;
	timezone: string;
	in_words: string;
	kind: string;
	payload: unknown;
	queue: string;
	group: string | null;
	priority: number;
	max_retry: number;
	timeout_seconds: number | null;
	enabled: boolean;
	overlap: string;
	missed: string;
	origin: string;
	is_declared: boolean;
	changed_at: string;
	next_at: string | null;
	recent?: Tick[];
}

export interface Operation {
	id: string;
	action: string;
	state: "running" | "done" | "cancelled" | "failed";
	examined: number;
	changed: number;
	unchanged: number;
	matching: number | null;
	matching_capped: boolean;
	error: string | null;
}

export interface DeadGroup {
	kind: string;
	error: string;
	sample_error: string;
	count: number;
	first_at: string;
	last_at: string;
	queues: string[];
	states: JobState[];
	newest_job_id: string;
}

export interface Kind {
	name: string;
	queue: string;
	parameters: string[];
}
