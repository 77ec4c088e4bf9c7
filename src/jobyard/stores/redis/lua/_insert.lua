-- Insert: holders of unique keys, known ids, the checks before anything is written, and everything written for a job.
-- Jobs come as a flat list: id, number of the queue's name, group, priority; each record is an argument of its own.
-- Options, by position of the jobs that have any: delay or at, key, scope, period, index, private, parent.
local ACTIVE, PERIOD = 1, 2
local known -- ids that exist, or were created by this command

-- The id of the job that holds the key, or false.
local function holder_of(name, key)
  local slot = name .. '\0' .. key
  local id = holders[slot]
  if id == nil then
    local held = call('HGET', PREFIX .. ':{' .. name .. '}:unique', key)
    id = held and unpack_bytes('>d', held) > now and sub(held, 10)
    holders[slot] = id
  end
  return id
end

local function hold_key(queue, options, id)
  local till = options.scope == PERIOD and after(options.period) or FOREVER
  call('HSET', queue.key .. 'unique', options.key, pack('>dB', till, options.scope == ACTIVE and 1 or 0) .. id)
  if options.scope == PERIOD then
    call('ZADD', queue.key .. 'unique_until', till, options.key)
  end
  holders[queue.name .. '\0' .. options.key] = till > now and id
end

-- The set of those ids that exist, in any queue.
local function known_ids(ids)
  local found_ids = {}
  for _, name in ipairs(all_queues()) do
    local found = hmget(PREFIX .. ':{' .. name .. '}:ids', ids)
    for index, id in ipairs(ids) do
      if found[index] then
        found_ids[id] = true
      end
    end
  end
  return found_ids
end

-- What the jobs of a call will take: ids, unique keys, and room in queues with a limit of waiting jobs.
local function new_plan()
  return { ids = {}, keys = {}, counts = {} }
end

-- The id of the job that holds the key, or of an earlier job of the plan; or false.
local function planned_holder(plan, name, key)
  return holder_of(name, key) or plan.keys[name .. '\0' .. key] or false
end

-- Add the job to the plan. Returns a rejection when its id is taken or its queue is set aside.
local function reserve(plan, id, name, group, key)
  if known[id] or plan.ids[id] then
    return { 'duplicate', id }
  end
  plan.ids[id] = true
  if key then
    plan.keys[name .. '\0' .. key] = id
  end
  local queue = known_queue(name)
  if queue and queue.paused >= SET_ASIDE then
    return { 'damaged', name, reason_aside(queue) }
  end
  if queue and (queue.max_waiting >= 0 or queue.max_waiting_per_group >= 0) then
    local count = plan.counts[name] or { all = 0, groups = {} }
    plan.counts[name] = count
    count.all = count.all + 1
    count.groups[group] = (count.groups[group] or 0) + 1
  end
  return nil
end

local function exceeds_queue(queue, added)
  return queue.max_waiting >= 0 and queue.waiting + queue.delayed + added > queue.max_waiting
end

local function exceeds_group(queue, name, added)
  if queue.max_waiting_per_group < 0 or name == '' then
    return false
  end
  local group = queue.groups[name] or remember_group(queue, name, call('HGET', queue.key .. 'groups', name))
  return group.waiting + group.delayed + added > queue.max_waiting_per_group
end

-- A MessagePack string of a record, and the position after it.
function contents.read_string(record, at)
  local first = byte(record, at)
  local start, size = at + 1, first - 0xa0 -- up to 31 bytes
  if first == 0xd9 then
    start, size = at + 2, byte(record, at + 1)
  elseif first == 0xda then
    start, size = at + 3, 256 * byte(record, at + 1) + byte(record, at + 2)
  end
  return sub(record, start, start + size - 1), start + size
end

-- The group and the kind in the record of a job. From `at`: flags (1) priority (8) group (2 + n) { id, kind, … }
function contents.names_of(record, at)
  local size = 256 * byte(record, at + 9) + byte(record, at + 10)
  local _, kind_at = contents.read_string(record, at + 12 + size)
  return sub(record, at + 11, at + 10 + size), (contents.read_string(record, kind_at))
end

function contents.note_names(queue, block, record, at)
  local group, kind = contents.names_of(record, at)
  contents.note(queue, block, 'k' .. kind)
  if group ~= '' then
    contents.note(queue, block, 'g' .. group)
  end
end

-- Write the records of a new job; the caller puts it in a line. Returns its sequence as text.
local function create_job(queue, id, record, run_at, options)
  sequence = sequence + 1
  local seq = format_sequence(sequence)
  local new = queue.new
  if not new then
    new = { jobs = {}, ids = {}, parents = {}, count = 0, stamp = pack('>dd', now, now) }
    queue.new = new
  end
  local jobs, ids, at = new.jobs, new.ids, new.count
  jobs[at + 1], jobs[at + 2] = seq, (run_at == now and new.stamp or pack('>dd', now, run_at)) .. record
  ids[at + 1], ids[at + 2] = id, seq
  new.count = at + 2
  local block = sub(seq, 1, BLOCK)
  queue.blocks[block] = (queue.blocks[block] or 0) + 1
  contents.note_names(queue, block, record, 1)
  if options then
    if options.index then
      call('HSET', queue.key .. 'marks', seq, cmsgpack.pack({ options.key or false, options.index }))
      for _, name in ipairs(options.index) do
        call('ZADD', queue.key .. 'index:' .. name, sequence, seq)
      end
    end
    if options.private then
      call('HSET', queue.key .. 'private', seq, options.private)
    end
    if options.parent then
      new.parents[#new.parents + 1], new.parents[#new.parents + 2] = seq, options.parent
    end
  end
  return seq
end

local function write_new()
  for _, queue in ipairs(loaded) do
    local new = queue.new
    if new then
      call_batched('HSET', queue.key .. 'jobs', new.jobs)
      new.ids[2] = pad(new.ids[2])
      call_batched('HSET', queue.key .. 'ids', new.ids)
      call_batched('HSET', queue.key .. 'parents', new.parents)
    end
  end
end

-- Add a job to the line of its group; written once for all jobs of the call.
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

-- Write the jobs of a call except those whose key is held. Returns the first sequence, then position and holder of these.
local function store(insert_call, held, records, offset)
  local first, answer, arrivals, list = sequence + 1, {}, {}, insert_call.jobs
  for position = 1, #list / 4 do
    local at = 4 * position
    local id = list[at - 3]
    if held[position] then
      answer[#answer + 1] = position - 1
      answer[#answer + 1] = held[position]
    else
      local queue, run_at = queue_of(request.names[list[at - 2]]), now
      local options = insert_call.options and insert_call.options[position]
      if options then
        run_at = options.at or after(options.delay or 0)
        if options.key then
          hold_key(queue, options, id)
        end
      end
      known[id] = true
      local seq = create_job(queue, id, records[offset + position], run_at, options)
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
    call_batched('ZADD', group.queue.key .. 'ready:' .. group.name, group.new_ready)
    group.new_ready = nil
  end
  table.insert(answer, 1, first)
  return answer
end

-- Write everything; waiters are not woken for jobs that cannot be claimed.
local function flush_new()
  write_new()
  for _, queue in ipairs(loaded) do
    if queue_room(queue) <= 0 then
      queue.arrived = 0
    end
  end
  flush()
end
