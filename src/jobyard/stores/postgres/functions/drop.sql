-- Delete jobs with their extras, tags and histories; their rows in done were deleted before, or never existed.
-- in: sequences.
CREATE OR REPLACE FUNCTION {schema}.jobyard_drop(p_sequences bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  with_extras bigint[];
  with_tags bigint[];
  with_history bigint[];
BEGIN
  WITH gone AS (
    DELETE FROM {schema}.jobyard_job WHERE ctid = ANY (ARRAY(
      SELECT x.tid FROM unnest(p_sequences) s(sequence)
      CROSS JOIN LATERAL (SELECT j.ctid AS tid FROM {schema}.jobyard_job j WHERE j.sequence = s.sequence OFFSET 0) x))
    RETURNING sequence, flags)
  SELECT array_agg(g.sequence) FILTER (WHERE g.flags & 8 <> 0), array_agg(g.sequence) FILTER (WHERE g.flags & 4 <> 0),
    array_agg(g.sequence) FILTER (WHERE g.flags & 64 <> 0)
  INTO with_extras, with_tags, with_history FROM gone g;
  IF with_extras IS NOT NULL THEN
    DELETE FROM {schema}.jobyard_extra WHERE ctid = ANY (ARRAY(
      SELECT x.tid FROM unnest(with_extras) s(sequence)
      CROSS JOIN LATERAL (SELECT e.ctid AS tid FROM {schema}.jobyard_extra e WHERE e.sequence = s.sequence OFFSET 0) x));
  END IF;
  IF with_tags IS NOT NULL THEN
    DELETE FROM {schema}.jobyard_tag WHERE ctid = ANY (ARRAY(
      SELECT x.tid FROM unnest(with_tags) s(sequence)
      CROSS JOIN LATERAL (SELECT t.ctid AS tid FROM {schema}.jobyard_tag t WHERE t.sequence = s.sequence OFFSET 0) x));
  END IF;
  IF with_history IS NOT NULL THEN
    DELETE FROM {schema}.jobyard_history WHERE ctid = ANY (ARRAY(
      SELECT x.tid FROM unnest(with_history) s(sequence)
      CROSS JOIN LATERAL (SELECT h.ctid AS tid FROM {schema}.jobyard_history h WHERE h.sequence = s.sequence OFFSET 0) x));
    DELETE FROM {schema}.jobyard_scope WHERE ctid = ANY (ARRAY(
      SELECT x.tid FROM unnest(with_history) s(sequence)
      CROSS JOIN LATERAL (SELECT c.ctid AS tid FROM {schema}.jobyard_scope c WHERE c.sequence = s.sequence OFFSET 0) x));
  END IF;
END
$$;
