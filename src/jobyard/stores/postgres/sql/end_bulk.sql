-- in: now, then per group that got jobs, in the order of arrival: queue, group, due, delayed, first place, first instant.
INSERT INTO {schema}.jobyard_inbox (queue, xid, number, group_name, at, waiting, delayed, ord, run_at)
SELECT u.q, pg_current_xact_id()::text::bigint, nextval('{schema}.jobyard_turn'), u.g, $1::bigint, u.w, u.d, u.ord, u.run_at
FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::bigint[], $7::bigint[]) u(q, g, w, d, ord, run_at)
