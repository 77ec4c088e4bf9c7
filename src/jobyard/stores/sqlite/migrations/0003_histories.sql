-- Histories of jobs, and the ends of jobs that others wait for.
-- New bits of jobyard_job.flags: 8: has a parent; 16: a workflow; 32: has a history, although it is not a workflow.
-- New kinds of jobyard_extra: parent; cancel (a workflow's request to stop, carried to its next attempt);
-- wake (the conditions of a parked workflow). Signals move to the history.

-- entry: the last number given to an entry of a history.
ALTER TABLE jobyard_counter ADD COLUMN entry INTEGER NOT NULL DEFAULT 0;

CREATE TABLE jobyard_history (
  sequence INTEGER NOT NULL, scope TEXT NOT NULL, number INTEGER NOT NULL,
  key TEXT NOT NULL, at INTEGER NOT NULL, data BLOB NOT NULL,
  taken INTEGER,               -- of a signal: whether a park has taken it
  PRIMARY KEY (sequence, scope, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX jobyard_history_key ON jobyard_history (sequence, scope, key);
CREATE INDEX jobyard_history_signal ON jobyard_history (sequence, scope, number) WHERE taken = 0;

CREATE TABLE jobyard_ended (
  number INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL UNIQUE,
  state TEXT,                  -- NULL: deleted
  parent BLOB, is_workflow INTEGER NOT NULL, result BLOB, reason TEXT
);

INSERT INTO jobyard_history (sequence, scope, number, key, at, data, taken)
SELECT sequence, 'signal:' || json_extract(text, '$[0]'), row_number() OVER (ORDER BY sequence, number),
  lower(hex(randomblob(8))), CAST(strftime('%s', 'now') AS INTEGER) * 1000,
  CAST(substr(json_remove(text, '$[0]'), 2, length(json_remove(text, '$[0]')) - 2) AS BLOB), 0
FROM (SELECT sequence, number, CAST(data AS TEXT) AS text FROM jobyard_extra WHERE what = 'signal');

UPDATE jobyard_counter SET entry = (SELECT count(*) FROM jobyard_history);
UPDATE jobyard_job SET flags = flags | 32 WHERE sequence IN (SELECT sequence FROM jobyard_history);
UPDATE jobyard_lease SET flags = flags | 32 WHERE sequence IN (SELECT sequence FROM jobyard_history);
UPDATE jobyard_done SET flags = flags | 32 WHERE sequence IN (SELECT sequence FROM jobyard_history);
DELETE FROM jobyard_extra WHERE what = 'signal';
