-- queue {0} has {1} jobs but no row{2}
SELECT j.queue, count(*), '' FROM {schema}.jobyard_job j
WHERE NOT EXISTS (SELECT FROM {schema}.jobyard_queue q WHERE q.name = j.queue) GROUP BY 1
