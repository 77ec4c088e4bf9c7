-- Ticks of schedules, each decided once, by the first of several schedulers.

DROP FUNCTION IF EXISTS {schema}.jobyard_fire;
DROP TABLE {schema}.jobyard_fired;

-- The lock on a schedule's row serialises its decisions. Room in its page: every tick writes a new row version.
CREATE TABLE {schema}.jobyard_armed (
  schedule text COLLATE "C" PRIMARY KEY,
  revision bigint NOT NULL,                    -- only ticks of this revision are decided
  decided_until bigint NOT NULL,               -- only later instants can be decided; never decreases
  kept bigint NOT NULL DEFAULT 0,              -- number of its ticks that are kept
  kept_from bigint NOT NULL DEFAULT 0          -- no kept tick is older; index entries before it are dead
) WITH (fillfactor = 50);
CREATE TABLE {schema}.jobyard_tick (
  schedule text COLLATE "C" NOT NULL, at bigint NOT NULL,
  verdict text COLLATE "C" NOT NULL,
  first bigint NOT NULL, count bigint NOT NULL,  -- it stands for `count` instants since `first`
  decided_at bigint NOT NULL,
  job_id text COLLATE "C",                     -- of the inserted job, or of the key's holder when it was skipped
  PRIMARY KEY (schedule, at)
);

-- The last number of each log, which does not go back when entries are trimmed.
CREATE TABLE {schema}.jobyard_log_end (
  name text COLLATE "C" PRIMARY KEY, number bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.jobyard_log_end SELECT l.name, max(l.number) FROM {schema}.jobyard_log l GROUP BY l.name;
