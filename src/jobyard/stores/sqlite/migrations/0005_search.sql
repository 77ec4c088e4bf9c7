-- Searches by group, and by the states of which there are usually few. Jobs without a group and completed ones cost nothing.
CREATE INDEX jobyard_job_group ON jobyard_job (group_name) WHERE group_name <> '';
CREATE INDEX jobyard_done_state ON jobyard_done (state) WHERE bucket = 1;
