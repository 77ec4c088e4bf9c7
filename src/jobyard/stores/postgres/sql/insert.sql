-- name: insert(now, queue names, strict, then the fields of `JobColumns`)
-- -> per job in order: sequence (0: not created), id of the job that holds its unique key
SELECT sequence, holder FROM {schema}.jobyard_insert(
  p_now => $1, p_names => $2, p_strict => $3,
  p_id => $4, p_kind => $5, p_queue => $6, p_group => $7, p_priority => $8, p_payload => $9, p_max_attempts => $10,
  p_private => $11, p_timeout => $12, p_backoff => $13, p_delay => $14, p_run_at => $15,
  p_unique => $16, p_scope => $17, p_period => $18, p_tags => $19, p_tag_of => $20, p_tag => $21,
  p_parent => $22, p_workflow => $23)

-- name: insert_one(now, then the fields of `PlainJob`) -> sequence; 0: use `insert`
SELECT {schema}.jobyard_insert_one(
  p_now => $1, p_id => $2, p_kind => $3, p_queue => $4, p_group => $5, p_priority => $6, p_payload => $7,
  p_max_attempts => $8, p_timeout => $9, p_backoff => $10)

-- name: insert_for(now, then the fields of `PlainJob` and of `ClaimRequest`)
-- -> a row with the sequence, then the rows of `exchange`; no row: use `insert` and `exchange`
SELECT * FROM {schema}.jobyard_insert_for(
  p_now => $1, p_id => $2, p_kind => $3, p_queue => $4, p_group => $5, p_priority => $6, p_payload => $7,
  p_max_attempts => $8, p_timeout => $9, p_backoff => $10,
  p_worker => $11, p_token => $12, p_queues => $13, p_wanted => $14, p_lease => $15)

-- name: flush()
-- An empty WAL message, committed under the server's synchronous_commit: when it returns, every earlier commit of any
-- connection is as durable.
SELECT pg_logical_emit_message(true, 'jobyard', '')

-- name: create_queues(names)
-- Create the queues that do not exist, with default settings.
INSERT INTO {schema}.jobyard_queue (name) SELECT n FROM unnest($1::text[]) n
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_queue k WHERE k.name = n) ORDER BY n ON CONFLICT DO NOTHING

-- name: begin_bulk(now, queue names, number of jobs)
-- -> now, sequences (NULL: a queue limits its waiting jobs, so COPY cannot be used)
SELECT o_now, o_sequences FROM {schema}.jobyard_begin_bulk(p_now => $1, p_names => $2, p_many => $3)

-- name: end_bulk(now, then one element per group in the order of its first due job: queue, group, number of due
-- jobs, number of delayed jobs, lowest ord, earliest run_at)
INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, waiting, delayed, ord, run_at)
SELECT u.q, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), u.g, $1::bigint, u.w, u.d, u.ord, u.run_at
FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::bigint[], $7::bigint[]) u(q, g, w, d, ord, run_at)
