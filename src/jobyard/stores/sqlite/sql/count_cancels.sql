-- out: how many running jobs have been asked to stop.
SELECT count(*) FROM jobyard_lease WHERE cancel IS NOT NULL
