-- queue {0} has a letter of transaction {2}, before its cursor {1}
SELECT q.name, q.inbox_from, min(i.xid) FROM {schema}.jobyard_queue q
JOIN {schema}.jobyard_inbox i ON i.queue = q.name GROUP BY 1, 2 HAVING min(i.xid) < q.inbox_from
