-- Divide slots among groups or queues in line, round-robin, as `domain.admission.share` does.
-- in: the room of each, in the order of the line; number of slots. out: the slots of each.
CREATE OR REPLACE FUNCTION {schema}.jobyard_share(p_rooms bigint[], p_wanted bigint) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  many CONSTANT integer := cardinality(p_rooms);
  given bigint[];
  remaining bigint := p_wanted;
  level bigint := 0;
  fits bigint;
BEGIN
  IF (SELECT sum(r) FROM unnest(p_rooms) r) <= p_wanted THEN
    RETURN p_rooms;
  END IF;
  -- Whole rounds first: each with room left gets one slot.
  LOOP
    SELECT count(*) INTO fits FROM unnest(p_rooms) r WHERE r > level;
    EXIT WHEN fits = 0 OR fits > remaining;
    remaining := remaining - fits;
    level := level + 1;
  END LOOP;
  given := ARRAY(SELECT least(r, level) FROM unnest(p_rooms) WITH ORDINALITY u(r, o) ORDER BY o);
  FOR i IN 1 .. many LOOP
    EXIT WHEN remaining <= 0;
    IF p_rooms[i] > level THEN
      given[i] := level + 1;
      remaining := remaining - 1;
    END IF;
  END LOOP;
  RETURN given;
END
$$;
