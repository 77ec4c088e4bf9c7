-- The facts about one job, from one moment.
-- request: id, max_counted, max_named
-- returns { parts, queue (max_running, max_per_group, paused, running, turn), group row, jobs ahead in the group,
--   groups ahead, records of the jobs whose end would make room, workers, now, 1 if the job is in line }, or {}
command('position', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  flush()
  local name = queue_holding(request.id)
  if not name then
    return {}
  end
  local queue = known_queue(name)
  local seq = seq_of(queue, request.id)
  local value = call('HGET', queue.key .. 'jobs', seq)
  if not value then
    return {}
  end
  local _, priority, group_name = job_header(value)
  local group = group_of(queue, group_name)
  local urgency = -(changes_of(queue, seq).p or priority)

  -- How many jobs are before (urgency, sequence), whether the job itself is in line or not.
  local function ahead()
    local key = queue.key .. 'ready:' .. group_name
    local low, high = call('ZCOUNT', key, '-inf', '(' .. urgency), call('ZCOUNT', key, '-inf', urgency)
    while low < high do
      local middle = math.floor((low + high) / 2)
      if call('ZRANGE', key, middle, middle)[1] < seq then
        low = middle + 1
      else
        high = middle
      end
    end
    return low
  end

  local function groups_ahead()
    if group.waiting == 0 then
      return call('ZCARD', queue.key .. 'line')
    end
    return call('ZCOUNT', queue.key .. 'line', '-inf', '(' .. group.turn)
  end

  -- The jobs whose end would make room: of the group, or of the queue if only the queue is full.
  local function holders()
    local limit = group.limit
    if limit < 0 then
      limit = (group_name == '' or queue.max_per_group < 0) and UNLIMITED or queue.max_per_group
    end
    local of_queue = queue.max_running >= 0 and queue.running >= queue.max_running and group.running < limit
    local found, leases = {}, call('HGETALL', queue.key .. 'leases')
    for index = 1, #leases, 2 do
      if of_queue or unpack_lease(leases[index + 1]).group == group_name then
        found[#found + 1] = leases[index]
      end
    end
    table.sort(found)
    local records = {}
    for index = 1, math.min(#found, request.max_named) do
      records[#records + 1] = call('HGET', queue.key .. 'jobs', found[index]) or nil
    end
    return records
  end

  return {
    job_parts(queue, seq, true),
    { queue.max_running, queue.max_per_group, queue.paused, queue.running, queue.turn },
    group_row(group), math.min(ahead(), request.max_counted + 1), math.min(groups_ahead(), request.max_counted + 1),
    holders(), call('HVALS', PREFIX .. ':workers'), now,
    call('ZSCORE', queue.key .. 'ready:' .. group_name, seq) and 1 or 0,
  }
end)
