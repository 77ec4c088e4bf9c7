-- Many jobs that are due at the same instant: the cursor over delayed jobs also remembers the sequence, because index
-- entries of the jobs that have already joined the line are dead, and are not to be scanned again by every claim.
ALTER TABLE {schema}.jobyard_queue ADD COLUMN delayed_after bigint NOT NULL DEFAULT 0;  -- within delayed_from

-- Each call now folds in a bounded number of events, so these have other parameters or another name.
DROP FUNCTION IF EXISTS {schema}.jobyard_hold(text[], bigint, boolean);
DROP FUNCTION IF EXISTS {schema}.jobyard_fold(text, bigint);
DROP FUNCTION IF EXISTS {schema}.jobyard_fold_in_steps(text, bigint);
