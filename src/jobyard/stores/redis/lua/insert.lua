-- Store jobs: several calls that met, each all or nothing.
-- asks: names (queues), calls: { jobs, more by position, schedule and tick if it fires }
-- further arguments: the records of all jobs, in order
-- answers per call: { first sequence, position and holder's id of those not created } or a reason to refuse:
--   { 'known' or 'twice', id }, { 'queue', name, limit, count }, { 'group', name, group, limit, count }, { 'fired' }
local FIRED_KEPT = 10000
local known -- ids that are taken, before this call or by it

local function check_room(counts)
  for name, count in pairs(counts) do
    local queue = known_queue(name)
    if queue and queue.max_waiting >= 0 and queue.waiting + queue.delayed + count.all > queue.max_waiting then
      return { 'queue', name, queue.max_waiting, count.all }
    end
    local most = queue and queue.max_waiting_per_group or -1
    for group_name, more in pairs(most >= 0 and count.groups or {}) do
      local group = queue.groups[group_name]
        or remember_group(queue, group_name, call('HGET', queue.key .. 'groups', group_name))
      if group_name ~= '' and group.waiting + group.delayed + more > most then
        return { 'group', name, group_name, most, more }
      end
    end
  end
  return nil
end

-- Who already holds each job's key; or why the call cannot be taken.
local function check(one)
  local held, ids, taken, counts = {}, {}, nil, nil
  for position = 1, #one.jobs / 4 do
    local at = 4 * position
    local id, group = one.jobs[at - 3], one.jobs[at - 1]
    local name, extra = ask.names[one.jobs[at - 2]], one.more and one.more[position]
    local holder = false
    if extra and extra.key then
      local place = name .. '\0' .. extra.key
      taken = taken or {}
      holder = holder_of(name, extra.key) or taken[place] or false
      taken[place] = taken[place] or not holder and id or nil
    end
    if holder then
      held[position] = holder
    elseif known[id] or ids[id] then
      return nil, { known[id] and 'known' or 'twice', id }
    else
      ids[id] = true
      local queue = known_queue(name)
      if queue and (queue.max_waiting >= 0 or queue.max_waiting_per_group >= 0) then
        counts = counts or {}
        local count = counts[name]
        if not count then
          count = { all = 0, groups = {} }
          counts[name] = count
        end
        count.all = count.all + 1
        count.groups[group] = (count.groups[group] or 0) + 1
      end
    end
  end
  return held, counts and check_room(counts)
end

-- Into the line of its group; written for all jobs of the call together.
local function join_line(group, priority, seq, arrivals)
  local ready = group.new_ready
  if not ready then
    ready = { count = 0 }
    group.new_ready = ready
    arrivals[#arrivals + 1] = group
  end
  local at = ready.count
  ready[at + 1], ready[at + 2] = -priority, seq
  ready.count = at + 2
end

local function store(one, held, args, argument)
  local first, answer, arrivals, list = sequence + 1, {}, {}, one.jobs
  for position = 1, #list / 4 do
    local at = 4 * position
    local id = list[at - 3]
    if held[position] then
      answer[#answer + 1] = position - 1
      answer[#answer + 1] = held[position]
    else
      local queue, extra, run_at = queue_of(ask.names[list[at - 2]]), one.more and one.more[position], now
      if extra then
        run_at = extra.at or after(extra.delay or 0)
        if extra.key then
          hold_key(queue, extra, id)
        end
      end
      known[id] = true
      local seq = register(queue, id, args[argument + position], run_at, extra)
      local group = queue.groups[list[at - 1]] or group_of(queue, list[at - 1])
      if run_at <= now then
        join_line(group, list[at], seq, arrivals)
        arrive(group, 1)
      else
        call('ZADD', queue.key .. 'delayed', run_at, seq)
        delay(group, 1)
      end
    end
  end
  for _, group in ipairs(arrivals) do
    many('ZADD', group.queue.key .. 'ready:' .. group.name, group.new_ready)
    group.new_ready = nil
  end
  table.insert(answer, 1, first)
  return answer
end

-- Whether the schedule's instant has been fired; what is older than all that are kept counts as fired.
local function has_fired(one)
  local key = ROOT .. ':fired:' .. one.schedule
  if call('ZSCORE', key, one.tick) then
    return true
  end
  local oldest = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return call('ZCARD', key) >= FIRED_KEPT and one.tick < tonumber(oldest[2])
end

local function note_fired(one)
  local key = ROOT .. ':fired:' .. one.schedule
  call('ZADD', key, one.tick, one.tick)
  call('ZREMRANGEBYRANK', key, 0, -FIRED_KEPT - 1)
end

local function every_id()
  local ids, count = {}, 0
  for _, one in ipairs(ask.calls) do
    for index = 1, #one.jobs, 4 do
      count = count + 1
      ids[count] = one.jobs[index]
    end
  end
  return ids
end

command('insert', {}, function(_, args)
  begin_line(args)
  promote()
  known = known_ids(every_id())
  local answers, argument = {}, 2
  for index, one in ipairs(ask.calls) do
    if one.schedule and has_fired(one) then
      answers[index] = { 'fired' }
    else
      local held, refusal = check(one)
      answers[index] = refusal or store(one, held, args, argument)
      if one.schedule and not refusal then
        note_fired(one)
      end
    end
    argument = argument + #one.jobs / 4
  end
  write_new()
  -- Nobody need wake for what cannot be claimed.
  for _, queue in ipairs(loaded) do
    if queue_room(queue) <= 0 then
      queue.arrived = 0
    end
  end
  flush()
  return answers
end)
