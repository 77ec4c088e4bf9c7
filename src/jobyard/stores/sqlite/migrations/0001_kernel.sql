-- Everything is prefixed: an application may keep its own tables in the same file and insert jobs in its own transaction.
-- A job row is written once; where the job stands is said by which of ready, delayed, lease and done holds its sequence.

CREATE TABLE jobyard_counter (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  sequence INTEGER NOT NULL,   -- the last one given to a job
  turn INTEGER NOT NULL,       -- the last place in any line
  finish INTEGER NOT NULL,     -- the last place in the order of finishing
  revision INTEGER NOT NULL    -- numbers the changes of the line in commit order
);
INSERT INTO jobyard_counter VALUES (1, 0, 0, 0, 0);

CREATE TABLE jobyard_queue (
  name TEXT PRIMARY KEY,
  max_running INTEGER, max_per_group INTEGER, max_waiting INTEGER, max_waiting_per_group INTEGER,
  keep_completed INTEGER NOT NULL, keep_failed INTEGER NOT NULL, keep_seconds REAL NOT NULL,
  paused INTEGER NOT NULL, turn INTEGER NOT NULL,
  waiting INTEGER NOT NULL, delayed INTEGER NOT NULL, running INTEGER NOT NULL,
  completed INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE jobyard_group (
  queue TEXT NOT NULL,
  name TEXT NOT NULL,          -- '' holds the jobs without a group
  own_limit INTEGER,
  paused INTEGER NOT NULL, turn INTEGER NOT NULL,
  waiting INTEGER NOT NULL, delayed INTEGER NOT NULL, running INTEGER NOT NULL,
  open INTEGER NOT NULL,       -- it has a due job and room of its own: only such groups are in the index of the line
  PRIMARY KEY (queue, name)
) WITHOUT ROWID;
CREATE INDEX jobyard_line ON jobyard_group (queue, turn) WHERE open = 1;

CREATE TABLE jobyard_job (
  sequence INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL, queue TEXT NOT NULL, group_name TEXT NOT NULL, priority INTEGER NOT NULL,
  payload BLOB NOT NULL, private_payload BLOB,
  max_attempts INTEGER NOT NULL, used INTEGER NOT NULL, deaths INTEGER NOT NULL,
  timeout_seconds REAL, backoff BLOB,
  run_at INTEGER NOT NULL, created_at INTEGER NOT NULL,
  unique_key TEXT, tags TEXT, waiting_for TEXT, signal BLOB,
  flags INTEGER NOT NULL       -- 1: frees its unique key at the end; 2: has a private payload; 4: has tags
);
CREATE INDEX jobyard_job_kind ON jobyard_job (kind);
CREATE INDEX jobyard_job_unique ON jobyard_job (unique_key) WHERE unique_key IS NOT NULL;

CREATE TABLE jobyard_ready (
  queue TEXT NOT NULL, group_name TEXT NOT NULL, urgency INTEGER NOT NULL, sequence INTEGER NOT NULL,
  PRIMARY KEY (queue, group_name, urgency, sequence)   -- urgency = -priority: the key is the rule's order
) WITHOUT ROWID;

CREATE TABLE jobyard_delayed (
  run_at INTEGER NOT NULL, sequence INTEGER NOT NULL,
  PRIMARY KEY (run_at, sequence)
) WITHOUT ROWID;

CREATE TABLE jobyard_lease (
  sequence INTEGER PRIMARY KEY,
  token TEXT NOT NULL, expires_at INTEGER NOT NULL, worker TEXT NOT NULL,
  attempt INTEGER NOT NULL, started_at INTEGER NOT NULL,
  queue TEXT NOT NULL, group_name TEXT NOT NULL, flags INTEGER NOT NULL,
  external_id TEXT, cancel TEXT
);
CREATE INDEX jobyard_lease_cancel ON jobyard_lease (worker) WHERE cancel IS NOT NULL;

CREATE TABLE jobyard_done (
  sequence INTEGER PRIMARY KEY,
  finish INTEGER NOT NULL, queue TEXT NOT NULL,
  bucket INTEGER NOT NULL,     -- 0: COMPLETED; 1: the rest
  state TEXT NOT NULL, started_at INTEGER, finished_at INTEGER NOT NULL, worker TEXT,
  flags INTEGER NOT NULL, attempt INTEGER NOT NULL, result BLOB, reason TEXT
);
CREATE INDEX jobyard_done_finish ON jobyard_done (queue, bucket, finish);

CREATE TABLE jobyard_extra (
  sequence INTEGER NOT NULL,
  what TEXT NOT NULL,          -- error, log, progress, step, signal
  number INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (sequence, what, number)
) WITHOUT ROWID;

CREATE TABLE jobyard_tag (tag TEXT NOT NULL, sequence INTEGER NOT NULL, PRIMARY KEY (tag, sequence)) WITHOUT ROWID;

CREATE TABLE jobyard_unique (
  queue TEXT NOT NULL, key TEXT NOT NULL, job_id TEXT NOT NULL,
  until INTEGER,               -- NULL: while the job is active
  PRIMARY KEY (queue, key)
) WITHOUT ROWID;

CREATE INDEX jobyard_unique_until ON jobyard_unique (until) WHERE until < 253402300799999;

CREATE TABLE jobyard_worker (id TEXT PRIMARY KEY, expires_at INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE jobyard_fired (schedule TEXT NOT NULL, tick INTEGER NOT NULL, job_id TEXT NOT NULL,
  PRIMARY KEY (schedule, tick)) WITHOUT ROWID;
CREATE TABLE jobyard_record (collection TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL,
  expires_at INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (collection, key)) WITHOUT ROWID;
CREATE INDEX jobyard_record_expiry ON jobyard_record (expires_at) WHERE expires_at < 253402300799999;
CREATE TABLE jobyard_log (name TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (name, number)) WITHOUT ROWID;
