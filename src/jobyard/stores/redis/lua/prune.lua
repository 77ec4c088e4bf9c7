-- Remove finished jobs beyond each queue's retention, oldest first, and what has expired otherwise.
-- asks: limit
-- answers how many jobs were removed
command('prune', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  local removed = 0
  for _, name in ipairs(all_queues()) do
    local queue = known_queue(name)
    removed = removed + prune_queue(queue, ask.limit - removed, 0)
    for _, key in ipairs(call('ZRANGEBYSCORE', queue.key .. 'unique_until', '-inf', now, 'LIMIT', 0, ask.limit)) do
      local holder = call('HGET', queue.key .. 'unique', key)
      if holder and unpack_bytes('>d', holder) <= now then
        call('HDEL', queue.key .. 'unique', key)
      end
      call('ZREM', queue.key .. 'unique_until', key)
    end
    for _, id in ipairs(call('ZRANGEBYSCORE', queue.key .. 'awaited_until', '-inf', now, 'LIMIT', 0, ask.limit)) do
      call('HDEL', queue.key .. 'awaited', id)
      call('ZREM', queue.key .. 'awaited_until', id)
    end
  end
  for _, place in ipairs(call('ZRANGEBYSCORE', ROOT .. ':expiry', '-inf', now, 'LIMIT', 0, ask.limit)) do
    local collection, key = cmsgpack.unpack(place)
    call('HDEL', ROOT .. ':record:' .. collection, key)
    call('ZREM', ROOT .. ':keys:' .. collection, key)
    call('ZREM', ROOT .. ':expiry', place)
  end
  local orders = call('HVALS', ROOT .. ':order')
  for _, packed in ipairs(orders) do
    local order = cmsgpack.unpack(packed)
    if order.expires <= now then
      lie_down(order)
    end
  end
  local workers = call('HGETALL', ROOT .. ':workers')
  for index = 1, #workers, 2 do
    if unpack_bytes('>d', workers[index + 1]) <= now then
      call('HDEL', ROOT .. ':workers', workers[index])
    end
  end
  flush()
  return removed
end)
