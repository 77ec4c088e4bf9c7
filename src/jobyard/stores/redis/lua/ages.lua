-- The age of the oldest due and of the oldest running job of each queue.
-- request: most (jobs examined per queue: the first one of each priority in each group)
-- returns rows: { name, waiting since, running since }, each time as text, or empty
command('ages', { 'no-writes' }, function(_, args)
  begin_line(args)

  local function due_since(queue, seq)
    local value = call('HGET', queue.key .. 'jobs', seq)
    if not value then
      return now
    end
    local created, run_at = unpack_bytes('>dd', value)
    return math.max(created, changes_of(queue, seq).r or run_at)
  end

  local function waiting_since(queue)
    -- Due jobs that are not in line yet are among the delayed, ordered by when they became due.
    local oldest = tonumber(call('ZRANGEBYSCORE', queue.key .. 'delayed', '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1)[2])
    local left = request.most
    if queue.waiting == 0 then
      return oldest
    end
    for _, group in ipairs(call('ZRANGEBYLEX', queue.key .. 'names', '-', '+', 'LIMIT', 0, request.most)) do
      local key, from = queue.key .. 'ready:' .. group, '-inf'
      while left > 0 do
        local first = call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if not first[1] then
          break
        end
        local since = due_since(queue, first[1])
        oldest = oldest and math.min(oldest, since) or since
        from, left = '(' .. first[2], left - 1
      end
    end
    return oldest
  end

  local function running_since(queue)
    local oldest
    for _, record in ipairs(call('HVALS', queue.key .. 'leases')) do
      local started = unpack_lease(record).started
      oldest = oldest and math.min(oldest, started) or started
    end
    return oldest
  end

  local function text(time)
    return time and format('%.0f', time) or ''
  end

  local rows = {}
  for index, name in ipairs(all_queues()) do
    local queue = known_queue(name)
    rows[index] = { name, text(waiting_since(queue)), text(running_since(queue)) }
  end
  return rows
end)
