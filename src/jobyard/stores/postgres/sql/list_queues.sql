-- out: all queues by name.
SELECT k.name, k.max_running, k.max_per_group, k.max_waiting, k.max_waiting_per_group, k.keep_completed, k.keep_failed,
  k.keep_seconds, k.paused, k.turn, k.waiting, k.delayed, k.running, k.completed, k.failed, k.cancelled
FROM {schema}.jobyard_queue k ORDER BY k.name
