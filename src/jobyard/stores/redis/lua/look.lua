-- Whether something of the queues may be claimed; if not, this handle is noted as asleep.
-- asks: queues (none means all), handle, sleeps
-- answers { 1 or 0, next due or -1, now }
command('look', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  local names = ask.queues
  if #names == 0 then
    names = call('ZRANGE', ROOT .. ':turns', 0, -1)
    for _, queue in ipairs(loaded) do
      names[#names + 1] = queue.name
    end
  end
  local is_claimable = 0
  flush()
  for _, name in ipairs(names) do
    local queue = known_queue(name)
    if queue and queue.waiting > 0 and queue_room(queue) > 0 and call('EXISTS', queue.key .. 'line') == 1 then
      is_claimable = 1
      break
    end
  end
  if is_claimable == 0 and ask.sleeps then
    for _, name in ipairs(ask.queues) do
      call('SADD', ROOT .. ':{' .. name .. '}:sleepers', ask.handle)
    end
    if #ask.queues == 0 then
      call('SADD', ROOT .. ':sleepers', ask.handle)
    end
  end
  return { is_claimable, next_due(), now }
end)
