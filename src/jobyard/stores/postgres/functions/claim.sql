-- Free slots and claim jobs in several queues in turn; the caller has locked their rows.
-- in: now, worker, token, end of the leases, queues to claim from, number of jobs; per group that lost running jobs:
--     queue, name, number. out: as jobyard_claim_one; places grow from queue to queue, in the order of their turns.
CREATE OR REPLACE FUNCTION {schema}.jobyard_claim(
  p_now bigint, p_worker text, p_token text, p_expires bigint, p_queues text[], p_wanted bigint,
  f_queue text[], f_group text[], f_count bigint[],
  OUT a_ord bigint[], OUT a_used integer[], OUT a_g integer[]
) LANGUAGE plpgsql AS $$
DECLARE
  groups_per_queue CONSTANT integer := 1048576;
  names text[];
  rooms bigint[] := '{}';
  given bigint[];
  t_group text[];
  t_count bigint[];
  found_rooms bigint := 0;
  c record;
  t record;
BEGIN
  names := ARRAY(SELECT k.name FROM {schema}.jobyard_queue k WHERE k.name = ANY (p_queues || f_queue)
                 ORDER BY k.turn_at, k.turn);
  FOR i IN 1 .. cardinality(names) LOOP
    t_group := ARRAY(SELECT u.g FROM unnest(f_queue, f_group) u(q, g) WHERE u.q = names[i]);
    t_count := ARRAY(SELECT u.n FROM unnest(f_queue, f_count) u(q, n) WHERE u.q = names[i]);
    -- Each queue with a claimable job gets a turn before any gets a second: those after the first `wanted` get none.
    rooms := rooms || CASE WHEN found_rooms >= p_wanted OR NOT names[i] = ANY (p_queues) THEN 0
                      ELSE {schema}.jobyard_room(names[i], p_wanted, t_group, t_count) END;
    found_rooms := found_rooms + CASE WHEN rooms[i] > 0 THEN 1 ELSE 0 END;
  END LOOP;
  given := {schema}.jobyard_share(rooms, p_wanted);
  -- A queue goes to the end of the line after each job: one that gave fewer jobs gave its last one earlier.
  FOR t IN SELECT u.i, u.n FROM unnest(given) WITH ORDINALITY u(n, i) ORDER BY u.n, u.i LOOP
    t_group := ARRAY(SELECT u.g FROM unnest(f_queue, f_group) u(q, g) WHERE u.q = names[t.i]);
    t_count := ARRAY(SELECT u.n FROM unnest(f_queue, f_count) u(q, n) WHERE u.q = names[t.i]);
    CONTINUE WHEN t.n = 0 AND cardinality(t_group) = 0;
    SELECT * INTO c FROM {schema}.jobyard_claim_one(
      p_now, p_worker, p_token, p_expires, names[t.i], t.n, t_group, t_count);
    a_ord := a_ord || c.a_ord;
    a_used := a_used || c.a_used;
    a_g := a_g || ARRAY(SELECT g + t.i::integer * groups_per_queue FROM unnest(c.a_g) g);
  END LOOP;
END
$$;
