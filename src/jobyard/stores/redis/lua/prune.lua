-- Remove finished jobs beyond the retention of each queue, oldest first, and everything else that expired.
-- request: limit
-- returns how many jobs were removed
command('prune', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  local removed, left = 0, request.limit -- of each kind in all queues: the command blocks the server for others

  local function expired(key)
    local members = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, left)
    left = left - #members
    return members
  end

  for _, name in ipairs(all_queues()) do
    local queue = known_queue(name)
    removed = removed + prune_queue(queue, request.limit - removed, 0)
    for _, key in ipairs(expired(queue.key .. 'unique_until')) do
      local holder = call('HGET', queue.key .. 'unique', key)
      if holder and unpack_bytes('>d', holder) <= now then
        call('HDEL', queue.key .. 'unique', key)
      end
      call('ZREM', queue.key .. 'unique_until', key)
    end
    for _, id in ipairs(expired(queue.key .. 'awaited_until')) do
      call('HDEL', queue.key .. 'awaited', id)
      call('ZREM', queue.key .. 'awaited_until', id)
    end
    for _, seq in ipairs(expired(queue.key .. 'kept')) do
      call('ZREM', queue.key .. 'kept', seq)
    end
  end
  for _, member in ipairs(expired(PREFIX .. ':expiry')) do
    local collection, key = cmsgpack.unpack(member)
    call('HDEL', PREFIX .. ':record:' .. collection, key)
    call('ZREM', PREFIX .. ':keys:' .. collection, key)
    call('ZREM', PREFIX .. ':expiry', member)
  end
  for _, packed in ipairs(call('HVALS', PREFIX .. ':order')) do
    local pending = cmsgpack.unpack(packed)
    if pending.expires <= now then
      remove_claim(pending)
    end
  end
  local workers = call('HGETALL', PREFIX .. ':workers')
  for index = 1, #workers, 2 do
    if unpack_bytes('>d', workers[index + 1]) <= now then
      call('HDEL', PREFIX .. ':workers', workers[index])
    end
  end
  flush()
  return removed
end)
