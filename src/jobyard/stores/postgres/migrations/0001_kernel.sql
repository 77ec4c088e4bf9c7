-- All names are prefixed and qualified, so that an application can keep its own tables in the same schema.
-- A job's row is written once; its state is given by which of ready, delayed, lease and done has a row for it.

CREATE SEQUENCE {schema}.jobyard_sequence;   -- sequence of jobs
CREATE SEQUENCE {schema}.jobyard_turn;       -- orders inbox rows, and queues among each other
CREATE SEQUENCE {schema}.jobyard_revision;   -- number of the last change of the line

-- The lock on a queue's row serialises its claims. Few rows per page: every exchange writes a new row version.
CREATE TABLE {schema}.jobyard_queue (
  name text COLLATE "C" PRIMARY KEY,
  max_running bigint, max_per_group bigint, max_waiting bigint, max_waiting_per_group bigint,
  keep_completed bigint NOT NULL DEFAULT 100,
  keep_failed bigint NOT NULL DEFAULT 50,
  keep_seconds double precision NOT NULL DEFAULT 0,
  paused boolean NOT NULL DEFAULT false,
  turn_at bigint NOT NULL DEFAULT 0,           -- its place among the queues: when it joined the end of their line,
  turn bigint NOT NULL DEFAULT 0,              --   and its number within that millisecond
  waiting bigint NOT NULL DEFAULT 0, delayed bigint NOT NULL DEFAULT 0, running bigint NOT NULL DEFAULT 0,
  completed bigint NOT NULL DEFAULT 0, failed bigint NOT NULL DEFAULT 0, cancelled bigint NOT NULL DEFAULT 0,
  line_last bigint NOT NULL DEFAULT 0,         -- the last turn given to a group
  finish_last bigint NOT NULL DEFAULT 0,       -- the last finish number
  -- Cursors: index entries before them are dead, and scanning dead entries is what makes a queue table slow.
  line_from bigint NOT NULL DEFAULT 0,         -- no open group has a turn before this
  inbox_from bigint NOT NULL DEFAULT 0,        -- all transactions before this one are folded in or rolled back
  delayed_from bigint NOT NULL DEFAULT 0,      -- no delayed job is due before this instant
  completed_from bigint NOT NULL DEFAULT 0,    -- no completed job has a finish number before this
  failed_from bigint NOT NULL DEFAULT 0,
  swept_to text COLLATE "C" NOT NULL DEFAULT ''  -- the last group that was examined for idleness
) WITH (fillfactor = 10);

CREATE TABLE {schema}.jobyard_group (
  queue text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,              -- '' holds the jobs without a group
  own_limit bigint,
  paused boolean NOT NULL DEFAULT false,
  turn bigint NOT NULL DEFAULT 0,
  waiting bigint NOT NULL DEFAULT 0, delayed bigint NOT NULL DEFAULT 0, running bigint NOT NULL DEFAULT 0,
  open boolean NOT NULL DEFAULT false,         -- it has a due job and room; stored, to keep updates cheap
  head bigint NOT NULL DEFAULT 0,              -- no ready job has an ord before this
  gap bigint NOT NULL DEFAULT 0,               -- distance between ords of its last claimed jobs; 0: unknown
  PRIMARY KEY (queue, name)
) WITH (fillfactor = 40);
CREATE INDEX jobyard_line ON {schema}.jobyard_group (queue, turn) WHERE open;

CREATE TABLE {schema}.jobyard_job (
  sequence bigint PRIMARY KEY,
  id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  group_name text COLLATE "C" NOT NULL,
  priority integer NOT NULL,
  max_attempts integer NOT NULL, used integer NOT NULL DEFAULT 0, deaths integer NOT NULL DEFAULT 0,
  flags integer NOT NULL,                      -- 1: frees its unique key at the end; 2: private payload; 4: tags; 8: extras
  run_at bigint NOT NULL, created_at bigint NOT NULL,
  timeout_seconds double precision,
  payload bytea NOT NULL, private_payload bytea,
  backoff bytea, unique_key text COLLATE "C", tags bytea, waiting_for text COLLATE "C", signal bytea
);
CREATE UNIQUE INDEX jobyard_job_id ON {schema}.jobyard_job (id);
CREATE INDEX jobyard_job_kind ON {schema}.jobyard_job (kind, sequence);
CREATE INDEX jobyard_job_unique ON {schema}.jobyard_job (unique_key, sequence) WHERE unique_key IS NOT NULL;

-- ord = (-priority << 42) + sequence: one number that orders the jobs of a group and identifies the job.
CREATE TABLE {schema}.jobyard_ready (
  queue text COLLATE "C" NOT NULL, group_name text COLLATE "C" NOT NULL, ord bigint NOT NULL,
  used integer NOT NULL, flags integer NOT NULL,   -- copied from the job: what a lease needs
  PRIMARY KEY (queue, group_name, ord)
);

CREATE TABLE {schema}.jobyard_delayed (
  queue text COLLATE "C" NOT NULL, run_at bigint NOT NULL, sequence bigint NOT NULL,
  group_name text COLLATE "C" NOT NULL, ord bigint NOT NULL, used integer NOT NULL, flags integer NOT NULL,
  parked boolean NOT NULL,
  PRIMARY KEY (queue, run_at, sequence)
);
CREATE INDEX jobyard_delayed_next ON {schema}.jobyard_delayed (run_at);

CREATE TABLE {schema}.jobyard_lease (
  sequence bigint PRIMARY KEY,
  expires_at bigint NOT NULL, started_at bigint NOT NULL,
  attempt integer NOT NULL, flags integer NOT NULL,
  token text COLLATE "C" NOT NULL, worker text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL, group_name text COLLATE "C" NOT NULL,
  external_id text, cancel text
) WITH (fillfactor = 60);
CREATE INDEX jobyard_lease_cancel ON {schema}.jobyard_lease (worker, sequence) WHERE cancel IS NOT NULL;

CREATE TABLE {schema}.jobyard_done (
  sequence bigint PRIMARY KEY,
  finish bigint NOT NULL,                      -- 0 until it is folded in
  started_at bigint, finished_at bigint NOT NULL,
  attempt integer NOT NULL,
  bucket smallint NOT NULL,                    -- 0: COMPLETED; 1: the rest
  queue text COLLATE "C" NOT NULL, state text COLLATE "C" NOT NULL, worker text COLLATE "C",
  result bytea, reason text
);
CREATE INDEX jobyard_done_finish ON {schema}.jobyard_done (queue, bucket, finish);

-- Changes of counts by transactions that do not lock the queue's row; the next one that does folds them in.
CREATE TABLE {schema}.jobyard_inbox (
  queue text COLLATE "C" NOT NULL, xid bigint NOT NULL, number bigint NOT NULL,
  group_name text COLLATE "C" NOT NULL, at bigint NOT NULL,
  waiting integer NOT NULL DEFAULT 0, delayed integer NOT NULL DEFAULT 0, running integer NOT NULL DEFAULT 0,
  completed integer NOT NULL DEFAULT 0, failed integer NOT NULL DEFAULT 0, cancelled integer NOT NULL DEFAULT 0,
  ord bigint,                                  -- the lowest of the jobs that became ready
  run_at bigint,                               -- the earliest of the jobs that became delayed
  ended bigint,                                -- a job that needs a finish number
  PRIMARY KEY (queue, xid, number)
);

CREATE TABLE {schema}.jobyard_extra (
  sequence bigint NOT NULL,
  what text COLLATE "C" NOT NULL,              -- error, log, progress, step, signal
  number integer NOT NULL,
  name text COLLATE "C",                       -- of a step or signal
  at bigint NOT NULL, finished_at bigint,
  data bytea NOT NULL,
  PRIMARY KEY (sequence, what, number)
);

CREATE TABLE {schema}.jobyard_tag (
  tag text COLLATE "C" NOT NULL, sequence bigint NOT NULL, PRIMARY KEY (tag, sequence)
);
CREATE INDEX jobyard_tag_sequence ON {schema}.jobyard_tag (sequence);

CREATE TABLE {schema}.jobyard_unique (
  queue text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, job_id text COLLATE "C" NOT NULL,
  until bigint,                                -- NULL: while the job is active
  PRIMARY KEY (queue, key)
);
CREATE INDEX jobyard_unique_until ON {schema}.jobyard_unique (until) WHERE until < 253402300799999;

CREATE TABLE {schema}.jobyard_worker (
  id text COLLATE "C" PRIMARY KEY, expires_at bigint NOT NULL, seen_at bigint NOT NULL, data bytea NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE {schema}.jobyard_fired (
  schedule text COLLATE "C" NOT NULL, tick bigint NOT NULL, job_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (schedule, tick)
);
CREATE TABLE {schema}.jobyard_record (
  collection text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, version bigint NOT NULL,
  expires_at bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (collection, key)
);
CREATE INDEX jobyard_record_expiry ON {schema}.jobyard_record (expires_at) WHERE expires_at < 253402300799999;
CREATE TABLE {schema}.jobyard_log (
  name text COLLATE "C" NOT NULL, number bigint NOT NULL, at bigint NOT NULL, data bytea NOT NULL,
  PRIMARY KEY (name, number)
);
-- When a maintenance chore last ran, so that one process of the fleet runs it and not each.
CREATE TABLE {schema}.jobyard_chore (name text COLLATE "C" PRIMARY KEY, at bigint NOT NULL);
