-- The facts about one job, all at one moment.
-- asks: id, most_counted, most_named
-- answers { parts, queue (max_running, max_per_group, paused, running, turn), group row, ahead in group,
--   groups ahead, ids of jobs whose end would make room, workers, now }, or nothing
command('standing', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  flush()
  local name = queue_holding(ask.id)
  if not name then
    return {}
  end
  local queue = known_queue(name)
  local seq = seq_of(queue, ask.id)
  local value = call('HGET', queue.key .. 'jobs', seq)
  local _, priority, group_name = header(value)
  local group = group_of(queue, group_name)
  local urgency = -(past_of(queue, seq).p or priority)

  -- How many stand before (urgency, sequence), whether the job itself stands there or not.
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

  -- Those whose end would make room: the group's, or the queue's where only the queue is full.
  local function holders()
    local limit = group.limit
    if limit < 0 then
      limit = (group_name == '' or queue.max_per_group < 0) and UNLIMITED or queue.max_per_group
    end
    local of_queue = queue.max_running >= 0 and queue.running >= queue.max_running and group.running < limit
    local found, leases = {}, call('HGETALL', queue.key .. 'leases')
    for index = 1, #leases, 2 do
      if of_queue or open_lease(leases[index + 1]).group == group_name then
        found[#found + 1] = leases[index]
      end
    end
    table.sort(found)
    local records = {}
    for index = 1, math.min(#found, ask.most_named) do
      records[index] = call('HGET', queue.key .. 'jobs', found[index])
    end
    return records
  end

  local row = pack(ROW, group.waiting, group.delayed, group.running, group.turn, group.limit, group.paused)
  return {
    see(queue, seq, true),
    { queue.max_running, queue.max_per_group, queue.paused, queue.running, queue.turn },
    row, math.min(ahead(), ask.most_counted + 1), math.min(groups_ahead(), ask.most_counted + 1), holders(),
    call('HVALS', ROOT .. ':workers'), now,
  }
end)
