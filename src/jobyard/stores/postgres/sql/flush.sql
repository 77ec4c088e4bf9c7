-- in: nothing. out: nothing of interest.
-- An empty message in the log, committed as the server's synchronous_commit says: when it is answered, whatever was
-- committed before it, from any connection, is as durable.
SELECT pg_logical_emit_message(true, 'jobyard', '')
