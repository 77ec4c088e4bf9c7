-- Histories of workflows, child jobs, and the ends of jobs that others wait for.
-- New bits of the flags, beside those of the first migration: 16: has a parent; 32: is a workflow; 64: has a history.
ALTER TABLE {schema}.jobyard_job
  ADD COLUMN parent text,                      -- JSON; where its end is delivered
  ADD COLUMN wake text,                        -- JSON; while parked: it is due once one of these conditions holds
  ADD COLUMN cancel text;                      -- why a workflow was to stop before its present attempt

CREATE SEQUENCE {schema}.jobyard_entry;        -- orders the entries of histories, and the ends

CREATE TABLE {schema}.jobyard_history (
  sequence bigint NOT NULL, scope text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
  number bigint NOT NULL, at bigint NOT NULL, data bytea NOT NULL,
  PRIMARY KEY (sequence, scope, key)
);
CREATE UNIQUE INDEX jobyard_history_number ON {schema}.jobyard_history (sequence, scope, number);

-- The lock on its row serialises the writers of a scope: numbers become visible in order, so that a reader misses none.
-- Scope '' has none: only the holder of the lease writes to it.
CREATE TABLE {schema}.jobyard_scope (
  sequence bigint NOT NULL, scope text COLLATE "C" NOT NULL,
  entries bigint NOT NULL DEFAULT 0,           -- number of its entries
  taken bigint NOT NULL DEFAULT 0,             -- of these, signals that a job which is not a workflow has taken:
  taken_to bigint NOT NULL DEFAULT 0,          --   all up to this number
  PRIMARY KEY (sequence, scope)
) WITH (fillfactor = 70);

CREATE TABLE {schema}.jobyard_ended (
  number bigint PRIMARY KEY,
  job_id text COLLATE "C" NOT NULL,
  state text COLLATE "C",                      -- NULL: deleted
  is_workflow boolean NOT NULL,
  parent text, result bytea, reason text
);
CREATE UNIQUE INDEX jobyard_ended_job ON {schema}.jobyard_ended (job_id);

-- Signals that jobs had not taken yet.
INSERT INTO {schema}.jobyard_history (sequence, scope, key, number, at, data)
SELECT e.sequence, 'signal:' || e.name, gen_random_uuid()::text, nextval('{schema}.jobyard_entry'), e.at, e.data
FROM (SELECT * FROM {schema}.jobyard_extra WHERE what = 'signal' ORDER BY sequence, number) e;
INSERT INTO {schema}.jobyard_scope (sequence, scope, entries)
SELECT h.sequence, h.scope, count(*) FROM {schema}.jobyard_history h GROUP BY h.sequence, h.scope;
UPDATE {schema}.jobyard_job j SET flags = j.flags | 64
WHERE j.sequence IN (SELECT s.sequence FROM {schema}.jobyard_scope s);
DELETE FROM {schema}.jobyard_extra WHERE what = 'signal';

-- These have more parameters or return more columns. Their new parameters have defaults, for processes of the earlier
-- version that still run.
DROP FUNCTION IF EXISTS {schema}.jobyard_adopt;
DROP FUNCTION IF EXISTS {schema}.jobyard_apply;
DROP FUNCTION IF EXISTS {schema}.jobyard_decide;
DROP FUNCTION IF EXISTS {schema}.jobyard_exchange;
DROP FUNCTION IF EXISTS {schema}.jobyard_insert;
DROP FUNCTION IF EXISTS {schema}.jobyard_insert_for;
DROP FUNCTION IF EXISTS {schema}.jobyard_signal;
