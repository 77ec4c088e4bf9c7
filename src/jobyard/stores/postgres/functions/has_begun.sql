-- Whether the history of a workflow has an entry that it has written itself.
-- in: sequence.
CREATE OR REPLACE FUNCTION {schema}.jobyard_has_begun(p_sequence bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (SELECT FROM {schema}.jobyard_history h WHERE h.sequence = p_sequence AND h.scope = '')
$$;
