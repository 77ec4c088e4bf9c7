-- New jobs: who holds a unique key, which ids are known, what they take from each other before anything is written, and
-- everything that is written for a job.
-- A job in a list is flat: id, number of its queue's name, group, priority; its record comes as an argument of its own.
-- What only some have is kept apart by position: delay or at, key, scope, period, index, private.
local ACTIVE, PERIOD = 1, 2
local known -- ids that are taken, before this call or by it

-- The id of the job that holds the key, or false.
local function holder_of(name, key)
  local place = name .. '\0' .. key
  local id = holders[place]
  if id == nil then
    local held = call('HGET', ROOT .. ':{' .. name .. '}:unique', key)
    id = held and unpack_bytes('>d', held) > now and sub(held, 10)
    holders[place] = id
  end
  return id
end

local function hold_key(queue, extra, id)
  local till = extra.scope == PERIOD and after(extra.period) or FOREVER
  call('HSET', queue.key .. 'unique', extra.key, pack('>dB', till, extra.scope == ACTIVE and 1 or 0) .. id)
  if extra.scope == PERIOD then
    call('ZADD', queue.key .. 'unique_until', till, extra.key)
  end
  holders[queue.name .. '\0' .. extra.key] = till > now and id
end

-- Which of the ids are known, whatever their queue.
local function known_ids(ids)
  local found_ids = {}
  for _, name in ipairs(all_queues()) do
    local found = fetch(ROOT .. ':{' .. name .. '}:ids', ids)
    for index, id in ipairs(ids) do
      if found[index] then
        found_ids[id] = true
      end
    end
  end
  return found_ids
end

-- What the jobs of a call will have taken: ids, keys, and room in queues that limit what may wait.
local function new_plan()
  return { ids = {}, keys = {}, counts = {} }
end

-- Who holds the key, be it an earlier job of the plan; or false.
local function planned_holder(plan, name, key)
  return holder_of(name, key) or plan.keys[name .. '\0' .. key] or false
end

-- The job takes its part. Answers a reason to refuse when its id is taken.
local function reserve(plan, id, name, group, key)
  if known[id] or plan.ids[id] then
    return { known[id] and 'known' or 'twice', id }
  end
  plan.ids[id] = true
  if key then
    plan.keys[name .. '\0' .. key] = id
  end
  local queue = known_queue(name)
  if queue and (queue.max_waiting >= 0 or queue.max_waiting_per_group >= 0) then
    local count = plan.counts[name] or { all = 0, groups = {} }
    plan.counts[name] = count
    count.all = count.all + 1
    count.groups[group] = (count.groups[group] or 0) + 1
  end
  return nil
end

local function queue_lacks(queue, more)
  return queue.max_waiting >= 0 and queue.waiting + queue.delayed + more > queue.max_waiting
end

local function group_lacks(queue, name, more)
  if queue.max_waiting_per_group < 0 or name == '' then
    return false
  end
  local group = queue.groups[name] or remember_group(queue, name, call('HGET', queue.key .. 'groups', name))
  return group.waiting + group.delayed + more > queue.max_waiting_per_group
end

-- Write what a job is; where it stands is the caller's affair. Answers its sequence, as it is named everywhere.
local function register(queue, id, record, run_at, extra)
  sequence = sequence + 1
  local seq = name_of(sequence)
  local new = queue.new
  if not new then
    new = { jobs = {}, ids = {}, count = 0, stamp = pack('>dd', now, now) }
    queue.new = new
  end
  local jobs, ids, at = new.jobs, new.ids, new.count
  jobs[at + 1], jobs[at + 2] = seq, (run_at == now and new.stamp or pack('>dd', now, run_at)) .. record
  ids[at + 1], ids[at + 2] = id, seq
  new.count = at + 2
  local block = sub(seq, 1, BLOCK)
  queue.blocks[block] = (queue.blocks[block] or 0) + 1
  if extra then
    if extra.index then
      call('HSET', queue.key .. 'marks', seq, cmsgpack.pack({ extra.key or false, extra.index }))
      for _, name in ipairs(extra.index) do
        call('ZADD', queue.key .. 'index:' .. name, sequence, seq)
      end
    end
    if extra.private then
      call('HSET', queue.key .. 'private', seq, extra.private)
    end
  end
  return seq
end

local function write_new()
  for _, queue in ipairs(loaded) do
    local new = queue.new
    if new then
      many('HSET', queue.key .. 'jobs', new.jobs)
      new.ids[2] = pad(new.ids[2])
      many('HSET', queue.key .. 'ids', new.ids)
    end
  end
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

-- Write the jobs of a call but for those whose key is held. Answers the first sequence, then position and holder of these.
local function store(one, held, records, offset)
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
      local seq = register(queue, id, records[offset + position], run_at, extra)
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

-- Writes all, and wakes nobody for what cannot be claimed.
local function flush_new()
  write_new()
  for _, queue in ipairs(loaded) do
    if queue_room(queue) <= 0 then
      queue.arrived = 0
    end
  end
  flush()
end
