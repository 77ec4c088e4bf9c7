-- Everything is prefixed and qualified: an application may keep its own tables beside these and join its transactions.
-- A job row is written once; where the job stands is said by which of ready, delayed, lease and done holds it.

CREATE SEQUENCE {schema}.jobyard_sequence;   -- numbers jobs
CREATE SEQUENCE {schema}.jobyard_turn;       -- numbers arrivals, and the places of queues among the queues
CREATE SEQUENCE {schema}.jobyard_revision;   -- numbers the changes of the line

-- Locking a queue's row is what serialises its claims. Few rows to a page: every exchange writes a new version.
CREATE TABLE {schema}.jobyard_queue (
  name text COLLATE "C" PRIMARY KEY,
  max_running bigint, max_per_group bigint, max_waiting bigint, max_waiting_per_group bigint,
  keep_completed bigint NOT NULL DEFAULT 100,
  keep_failed bigint NOT NULL DEFAULT 50,
  keep_seconds double precision NOT NULL DEFAULT 0,
  paused boolean NOT NULL DEFAULT false,
  turn_at bigint NOT NULL DEFAULT 0,           -- its place among the queues: when it joined the end of their line,
  turn bigint NOT NULL DEFAULT 0,              --   and, within that millisecond, as the how-manieth
  waiting bigint NOT NULL DEFAULT 0, delayed bigint NOT NULL DEFAULT 0, running bigint NOT NULL DEFAULT 0,
  completed bigint NOT NULL DEFAULT 0, failed bigint NOT NULL DEFAULT 0, cancelled bigint NOT NULL DEFAULT 0,
  line_last bigint NOT NULL DEFAULT 0,         -- the last place given to a group in its line
  finish_last bigint NOT NULL DEFAULT 0,       -- the last place given in the order of finishing
  -- Cursors: index entries before them are dead, and walking over the dead is what makes a queue table slow.
  line_from bigint NOT NULL DEFAULT 0,         -- no open group stands before this turn
  inbox_from bigint NOT NULL DEFAULT 0,        -- every transaction before this one has been folded in, or is undone
  delayed_from bigint NOT NULL DEFAULT 0,      -- nothing delayed is due before this instant
  completed_from bigint NOT NULL DEFAULT 0,    -- nothing completed has finished before this number
  failed_from bigint NOT NULL DEFAULT 0,
  swept_to text COLLATE "C" NOT NULL DEFAULT ''  -- how far the search for idle groups has come
) WITH (fillfactor = 10);

CREATE TABLE {schema}.jobyard_group (
  queue text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,              -- '' holds the jobs without a group
  own_limit bigint,
  paused boolean NOT NULL DEFAULT false,
  turn bigint NOT NULL DEFAULT 0,
  waiting bigint NOT NULL DEFAULT 0, delayed bigint NOT NULL DEFAULT 0, running bigint NOT NULL DEFAULT 0,
  open boolean NOT NULL DEFAULT false,         -- it has a due job and room of its own; stored, to keep updates cheap
  head bigint NOT NULL DEFAULT 0,              -- none of its ready jobs stands before this place
  gap bigint NOT NULL DEFAULT 0,               -- how far apart its jobs stood lately; 0: unknown
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

-- ord = (-priority << 42) + sequence: one number orders the group as the rule does, and names the job.
CREATE TABLE {schema}.jobyard_ready (
  queue text COLLATE "C" NOT NULL, group_name text COLLATE "C" NOT NULL, ord bigint NOT NULL,
  used integer NOT NULL, flags integer NOT NULL,   -- as in the job: what a lease needs, at hand
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
  finish bigint NOT NULL,                      -- 0 until the end is folded in
  started_at bigint, finished_at bigint NOT NULL,
  attempt integer NOT NULL,
  bucket smallint NOT NULL,                    -- 0: COMPLETED; 1: the rest
  queue text COLLATE "C" NOT NULL, state text COLLATE "C" NOT NULL, worker text COLLATE "C",
  result bytea, reason text
);
CREATE INDEX jobyard_done_finish ON {schema}.jobyard_done (queue, bucket, finish);

-- What changes the counts without holding the queue's row: whoever next holds it folds these in.
CREATE TABLE {schema}.jobyard_inbox (
  queue text COLLATE "C" NOT NULL, xid bigint NOT NULL, number bigint NOT NULL,
  group_name text COLLATE "C" NOT NULL, at bigint NOT NULL,
  waiting integer NOT NULL DEFAULT 0, delayed integer NOT NULL DEFAULT 0, running integer NOT NULL DEFAULT 0,
  completed integer NOT NULL DEFAULT 0, failed integer NOT NULL DEFAULT 0, cancelled integer NOT NULL DEFAULT 0,
  ord bigint,                                  -- the first place of those that joined
  run_at bigint,                               -- the first instant of those that are delayed
  ended bigint,                                -- a job whose end wants its number
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
-- Who last did a housekeeping chore, so that a fleet does it about once and not each process.
CREATE TABLE {schema}.jobyard_chore (name text COLLATE "C" PRIMARY KEY, at bigint NOT NULL);
