-- Wake another handle for a queue, because the woken one has no waiter any more.
-- request: name (queue)
command('forward_wakeup', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local queue = known_queue(request.name)
  if queue and queue.waiting > 0 and queue_room(queue) > 0 and call('EXISTS', queue.key .. 'line') == 1 then
    queue.arrived = 1
    flush()
  end
  return 0
end)
