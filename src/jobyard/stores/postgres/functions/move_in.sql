-- The tables have come to another server: what is remembered of transaction numbers is void.
CREATE OR REPLACE FUNCTION {schema}.jobyard_move_in() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_name CONSTANT text := 'cluster ' || (SELECT s.system_identifier FROM pg_control_system() s);
BEGIN
  PERFORM FROM {schema}.jobyard_queue k ORDER BY k.name FOR NO KEY UPDATE;
  UPDATE {schema}.jobyard_queue k SET inbox_from = 0;
  DELETE FROM {schema}.jobyard_chore c WHERE c.name LIKE 'cluster %';
  INSERT INTO {schema}.jobyard_chore (name, at) VALUES (v_name, {schema}.jobyard_now(NULL)) ON CONFLICT DO NOTHING;
END
$$;
