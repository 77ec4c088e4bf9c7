-- in: schedule, the latest revision that may go or NULL. Its rowcount says whether it was armed, with no later one.
DELETE FROM jobyard_armed WHERE schedule = ?1 AND revision <= coalesce(?2, revision)
