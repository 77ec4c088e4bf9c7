-- Retention by age for completed and failed jobs apart, up to a cap. An age of 0 was the default: such a queue gets the new
-- defaults, and an age that was set on purpose stays, for both.
ALTER TABLE {schema}.jobyard_queue
  ADD COLUMN keep_completed_seconds double precision NOT NULL DEFAULT 3600,
  ADD COLUMN keep_failed_seconds double precision NOT NULL DEFAULT 604800,
  ADD COLUMN keep_at_most bigint NOT NULL DEFAULT 100000,
  ADD COLUMN removed_by_cap bigint NOT NULL DEFAULT 0,  -- how many jobs keep_at_most removed early,
  ADD COLUMN removed_by_cap_at bigint;                  --   and the last time
UPDATE {schema}.jobyard_queue k SET keep_completed_seconds = k.keep_seconds, keep_failed_seconds = k.keep_seconds
WHERE k.keep_seconds <> 0;
ALTER TABLE {schema}.jobyard_queue DROP COLUMN keep_seconds;

-- Jobs for whose end a caller waits, where retention could remove them before the caller has seen it.
CREATE TABLE {schema}.jobyard_awaited (sequence bigint PRIMARY KEY, until bigint NOT NULL);

-- These have other parameters or return more columns.
DROP FUNCTION IF EXISTS {schema}.jobyard_configure;
DROP FUNCTION IF EXISTS {schema}.jobyard_list_queues;
