-- out: all rows, by name.
SELECT * FROM jobyard_queue ORDER BY name
