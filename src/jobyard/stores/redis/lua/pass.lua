-- A handle was told of work but nobody sleeps there any more: another one should hear of it.
-- asks: name (queue)
command('pass', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local queue = known_queue(ask.name)
  if queue and queue.waiting > 0 and queue_room(queue) > 0 and call('EXISTS', queue.key .. 'line') == 1 then
    queue.arrived = 1
    flush()
  end
  return 0
end)
