-- in: schedule, revision, since or NULL, now. Its rowcount says whether no later revision was there.
INSERT INTO jobyard_armed VALUES (?1, ?2, coalesce(?3, ?4))
ON CONFLICT (schedule) DO UPDATE
SET revision = excluded.revision, decided_until = max(decided_until, coalesce(?3, decided_until))
WHERE revision <= excluded.revision
