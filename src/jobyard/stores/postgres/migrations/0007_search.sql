-- Searches by group, and by the states of which there are usually few. Jobs without a group and completed ones cost nothing.
CREATE INDEX jobyard_job_group ON {schema}.jobyard_job (group_name, sequence) WHERE group_name <> '';
CREATE INDEX jobyard_done_state ON {schema}.jobyard_done (state, sequence) WHERE bucket = 1;
