-- group {0} is open at place {1}, before the queue's cursor {2}
SELECT g.queue || '/' || g.name, g.turn, q.line_from FROM {schema}.jobyard_group g
JOIN {schema}.jobyard_queue q ON q.name = g.queue WHERE g.open AND g.turn < q.line_from
