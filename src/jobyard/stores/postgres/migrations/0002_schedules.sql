-- Due instants of schedules are decided once for ever, whoever of several schedulers asks first.

DROP FUNCTION IF EXISTS {schema}.jobyard_fire;
DROP TABLE {schema}.jobyard_fired;

-- Locking a schedule's row is what serialises its decisions. Room in its page: every tick writes a new version.
CREATE TABLE {schema}.jobyard_armed (
  schedule text COLLATE "C" PRIMARY KEY,
  revision bigint NOT NULL,                    -- only its ticks are decided
  decided_until bigint NOT NULL,               -- only later instants are still to be decided; never goes back
  kept bigint NOT NULL DEFAULT 0,              -- how many of its ticks are remembered
  kept_from bigint NOT NULL DEFAULT 0          -- none of them is older: index entries before it are dead
) WITH (fillfactor = 50);
CREATE TABLE {schema}.jobyard_tick (
  schedule text COLLATE "C" NOT NULL, at bigint NOT NULL,
  verdict text COLLATE "C" NOT NULL,
  first bigint NOT NULL, count bigint NOT NULL,  -- it stands for so many instants since that one
  decided_at bigint NOT NULL,
  job_id text COLLATE "C",                     -- the inserted job's, or the holder's of its key when it was skipped
  PRIMARY KEY (schedule, at)
);

-- The last number of each log: what was trimmed counts on.
CREATE TABLE {schema}.jobyard_log_end (
  name text COLLATE "C" PRIMARY KEY, number bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO {schema}.jobyard_log_end SELECT l.name, max(l.number) FROM {schema}.jobyard_log l GROUP BY l.name;
