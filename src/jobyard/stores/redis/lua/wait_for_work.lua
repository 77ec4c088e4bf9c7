-- Whether a job of the queues may be claimable; if not, registers the handle as waiting.
-- request: queues (none means all), handle, waits
-- returns { 1 or 0, next due or -1, now }
command('wait_for_work', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  local names = request.queues
  if #names == 0 then
    names = call('ZRANGE', PREFIX .. ':turns', 0, -1)
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
  if is_claimable == 0 and request.waits then
    for _, name in ipairs(request.queues) do
      call('SADD', PREFIX .. ':{' .. name .. '}:sleepers', request.handle)
    end
    if #request.queues == 0 then
      call('SADD', PREFIX .. ':sleepers', request.handle)
    end
  end
  return { is_claimable, next_due(), now }
end)
