-- Pause or resume a whole queue.
-- in: name, paused.
CREATE OR REPLACE FUNCTION {schema}.jobyard_pause_queue(p_queue text, p_paused boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);  -- see jobyard_hold
  INSERT INTO {schema}.jobyard_queue (name) VALUES (p_queue) ON CONFLICT DO NOTHING;
  UPDATE {schema}.jobyard_queue k SET paused = p_paused WHERE k.name = p_queue;
  PERFORM nextval('{schema}.jobyard_revision');
END
$$;
