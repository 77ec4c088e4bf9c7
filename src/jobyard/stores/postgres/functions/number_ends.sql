-- Give finish numbers to jobs that ended while their queue's row was not locked.
-- in: queue, whose row the caller has locked; sequences in order.
CREATE OR REPLACE FUNCTION {schema}.jobyard_number_ends(p_queue text, p_sequences bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_last bigint;
BEGIN
  UPDATE {schema}.jobyard_queue k SET finish_last = k.finish_last + cardinality(p_sequences) WHERE k.name = p_queue
  RETURNING k.finish_last - cardinality(p_sequences) INTO v_last;
  UPDATE {schema}.jobyard_done d SET finish = v_last + u.o
  FROM unnest(p_sequences) WITH ORDINALITY u(sequence, o) WHERE d.sequence = u.sequence;
END
$$;
