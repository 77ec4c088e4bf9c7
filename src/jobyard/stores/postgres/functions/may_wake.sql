-- Whether one of the conditions of a parked workflow holds.
-- in: sequence, conditions (JSON).
CREATE OR REPLACE FUNCTION {schema}.jobyard_may_wake(p_sequence bigint, p_wake text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM json_to_recordset(p_wake::json) w(scope text, count bigint)
    LEFT JOIN LATERAL (SELECT x.entries FROM {schema}.jobyard_scope x
                       WHERE x.sequence = p_sequence AND x.scope = w.scope OFFSET 0) x ON true
    WHERE coalesce(x.entries, 0) >= w.count);
END
$$;
