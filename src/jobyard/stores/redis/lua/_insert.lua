-- New jobs: who holds a unique key, which ids are known, and everything that is written for a job.
-- A job in a list is flat: id, number of its queue's name, group, priority; its record comes as an argument of its own.
-- What only some have is kept apart by position: delay or at, key, scope, period, index, private.
local ACTIVE, PERIOD = 1, 2

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
  local known = {}
  for _, name in ipairs(all_queues()) do
    local found = fetch(ROOT .. ':{' .. name .. '}:ids', ids)
    for index, id in ipairs(ids) do
      if found[index] then
        known[id] = true
      end
    end
  end
  return known
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
