-- Schedules: which revision may decide due instants, and what became of them. An instant is decided once.

CREATE TABLE jobyard_armed (
  schedule TEXT PRIMARY KEY,
  revision INTEGER NOT NULL,        -- only its ticks are decided
  decided_until INTEGER NOT NULL    -- only later instants are still to be decided
) WITHOUT ROWID;

CREATE TABLE jobyard_tick (
  schedule TEXT NOT NULL, at INTEGER NOT NULL,
  verdict TEXT NOT NULL, job_id TEXT,
  first INTEGER NOT NULL, count INTEGER NOT NULL,   -- it stands for so many instants since that one
  decided_at INTEGER NOT NULL,
  PRIMARY KEY (schedule, at)
) WITHOUT ROWID;

DROP TABLE jobyard_fired;

CREATE TABLE jobyard_trimmed (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
