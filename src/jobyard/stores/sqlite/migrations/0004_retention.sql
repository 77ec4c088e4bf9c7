-- Retention by age for completed and failed jobs apart, up to a cap. An age of 0 was the default: such a queue gets the new
-- defaults, and an age that was set on purpose stays, for both.
CREATE TABLE jobyard_queue_with_ages (
  name TEXT PRIMARY KEY,
  max_running INTEGER, max_per_group INTEGER, max_waiting INTEGER, max_waiting_per_group INTEGER,
  keep_completed INTEGER NOT NULL, keep_failed INTEGER NOT NULL,
  keep_completed_seconds REAL NOT NULL, keep_failed_seconds REAL NOT NULL, keep_at_most INTEGER NOT NULL,
  paused INTEGER NOT NULL, turn INTEGER NOT NULL,
  waiting INTEGER NOT NULL, delayed INTEGER NOT NULL, running INTEGER NOT NULL,
  completed INTEGER NOT NULL, failed INTEGER NOT NULL, cancelled INTEGER NOT NULL,
  removed_by_cap INTEGER NOT NULL, removed_by_cap_at INTEGER   -- how many jobs keep_at_most removed early, and the last time
) WITHOUT ROWID;
INSERT INTO jobyard_queue_with_ages
SELECT name, max_running, max_per_group, max_waiting, max_waiting_per_group, keep_completed, keep_failed,
  CASE WHEN keep_seconds = 0 THEN 3600.0 ELSE keep_seconds END, CASE WHEN keep_seconds = 0 THEN 604800.0 ELSE keep_seconds END,
  100000, paused, turn, waiting, delayed, running, completed, failed, cancelled, 0, NULL
FROM jobyard_queue;
DROP TABLE jobyard_queue;
ALTER TABLE jobyard_queue_with_ages RENAME TO jobyard_queue;

-- Jobs for whose end a caller waits, where retention could remove them before the caller has seen it.
CREATE TABLE jobyard_awaited (sequence INTEGER PRIMARY KEY, until INTEGER NOT NULL);
