-- One job in its queue: its place, its records, its end and its removal.
-- jobs: created (8) run_at (8) flags (1) priority (8) group (2 + n), then the body, which only the client reads.
local HAS_PRIVATE, HAS_ACTIVE_KEY, HAS_MARKS, HAS_CHANGES = 1, 2, 4, 8
local PENDING, COMPLETED, FAILED, TIMEOUT, CANCELLED, RUNNING = 0, 1, 2, 3, 4, 5
local BLOCK = 12 -- digits that the thousand sequences of a block share

local function format_sequence(number)
  return format('%015d', number)
end

-- flags, priority, group and run_at of the insert
local function job_header(value)
  local _, run_at, flags, priority, group = unpack_bytes('>ddBdHc0', value)
  return flags, priority, group, run_at
end

local function has_flag(flags, flag)
  return flags % (2 * flag) >= flag
end

-- past: changes since the insert, stored only for jobs that differ from a new one:
-- u attempts used, d deaths, r run_at, w waiting for, s signal delivered, p priority
local function changes_of(queue, seq)
  if not has(queue, 'past') then
    return {}
  end
  local packed = call('HGET', queue.key .. 'past', seq)
  return packed and cmsgpack.unpack(packed) or {}
end

local function save_changes(queue, seq, changes)
  if changes.u == 0 then changes.u = nil end
  if changes.d == 0 then changes.d = nil end
  if next(changes) then
    call('HSET', queue.key .. 'past', seq, cmsgpack.pack(changes))
    queue.has.past = true
  elseif has(queue, 'past') then
    call('HDEL', queue.key .. 'past', seq)
  end
end

-- Put a PENDING job in line if it is due, otherwise among the delayed.
local function enter(group, seq, priority, run_at)
  local queue = group.queue
  if run_at <= now then
    call('ZADD', queue.key .. 'ready:' .. group.name, -priority, seq)
    arrive(group, 1)
  else
    call('ZADD', queue.key .. 'delayed', run_at, seq)
    delay(group, 1)
  end
end

-- Make the job wait again until `run_at`; parked if it waits for a signal.
local function wait(queue, seq, run_at, waiting_for, changes)
  local _, priority, group = job_header(call('HGET', queue.key .. 'jobs', seq))
  changes.r, changes.w = run_at, run_at > now and waiting_for or nil
  save_changes(queue, seq, changes)
  enter(group_of(queue, group), seq, changes.p or priority, run_at)
end

-- Put due jobs in line, by (run_at, sequence); limited per call, since more would block the server for others.
local PROMOTE_LIMIT = 2000

local function promote()
  if due > now then
    return
  end
  local joining = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', PREFIX .. ':due', '-inf', now)) do
    local queue = queue_of(name)
    local some = call('ZRANGEBYSCORE', queue.key .. 'delayed', '-inf', now, 'WITHSCORES', 'LIMIT', 0, PROMOTE_LIMIT)
    for index = 1, #some, 2 do
      joining[#joining + 1] = { queue, some[index], tonumber(some[index + 1]) }
    end
  end
  table.sort(joining, function(one, other)
    if one[3] ~= other[3] then
      return one[3] < other[3]
    end
    return one[2] < other[2]
  end)
  for index = 1, math.min(#joining, PROMOTE_LIMIT) do
    local queue, seq = joining[index][1], joining[index][2]
    local _, priority, name = job_header(call('HGET', queue.key .. 'jobs', seq))
    local changes = changes_of(queue, seq)
    if changes.w then
      changes.w = nil
      save_changes(queue, seq, changes)
    end
    local group = group_of(queue, name)
    call('ZREM', queue.key .. 'delayed', seq)
    delay(group, -1)
    enter(group, seq, changes.p or priority, now)
  end
end

-- The sequence of a job of this queue as text, or false.
local function seq_of(queue, id)
  local value = call('HGET', queue.key .. 'ids', id)
  return value and sub(value, 1, 15)
end

-- The parts from which the client builds its view of the job, each a byte string.
local function job_parts(queue, seq, full)
  local key = queue.key
  local function part(what)
    return has(queue, what) and call('HGET', key .. what, seq) or ''
  end
  local errors, lines, steps, progress = '', '', '', ''
  if has(queue, 'extras') and call('SISMEMBER', key .. 'extras', seq) == 1 then
    errors = join(call('LRANGE', key .. 'errors:' .. seq, 0, -1))
    progress = call('HGET', key .. 'extra:' .. seq, 'progress') or ''
    if full then
      lines = join(call('LRANGE', key .. 'log:' .. seq, 0, -1))
      steps = join(call('HGETALL', key .. 'steps:' .. seq))
    end
  end
  return {
    queue.name, seq, call('HGET', key .. 'jobs', seq) or '', part('past'), part('leases'), part('done'),
    part('outside'), part('stop'), progress, errors, lines, steps,
  }
end

-- Publish the end of a job to its waiters, with the whole job: retention may remove it at once.
local function publish_end(queue, id, message)
  if not has(queue, 'awaited') then
    return
  end
  local handles = call('HGET', queue.key .. 'awaited', id)
  if handles then
    for handle in string.gmatch(handles, '%S+') do
      call('PUBLISH', PREFIX .. ':to:' .. handle, message())
    end
    call('HDEL', queue.key .. 'awaited', id)
  end
end

-- Free an ACTIVE key when its job ends or is removed.
local function free_key(queue, seq, id)
  local marks = cmsgpack.unpack(call('HGET', queue.key .. 'marks', seq))
  local holder = call('HGET', queue.key .. 'unique', marks[1])
  if holder and byte(holder, 9) == 1 and sub(holder, 10) == id then
    call('HDEL', queue.key .. 'unique', marks[1])
  end
end

local function add_extra(queue, seq)
  call('SADD', queue.key .. 'extras', seq)
  queue.has.extras = true
end

local function add_error(queue, seq, error)
  call('RPUSH', queue.key .. 'errors:' .. seq, pack('>d', now) .. error)
  add_extra(queue, seq)
end

local function tally(queue, state, change)
  local count = state == COMPLETED and 'completed' or state == CANCELLED and 'cancelled' or 'failed'
  queue[count] = queue[count] + change
  queue.dirty = true
end

local function bucket(queue, state)
  return queue.key .. (state == COMPLETED and 'completed' or 'failed')
end

-- done: state (1) has a reason (1) finished (8) started (8) attempt (4) worker (2 + n) reason (4 + n) result (4 + n)
local function finished_head(state, reason, started, attempt, worker)
  local head = pack('>BBddIH', state, reason and 1 or 0, now, started, attempt, #worker) .. worker
  return reason and head .. pack('>I', #reason) .. reason or head
end

-- Write the end of a job: its record, the counts of its queue, its unique key.
local function finish(queue, seq, id, flags, state, reason, result, started, attempt, worker)
  finish_number = finish_number + 1
  local head = finished_head(state, reason, started, attempt, worker)
  call('HSET', queue.key .. 'done', seq, pad(head .. pack('>I', #(result or '')) .. (result or '')))
  queue.has.done = true
  call('ZADD', bucket(queue, state), finish_number, seq .. id)
  tally(queue, state, 1)
  if has_flag(flags, HAS_ACTIVE_KEY) then
    free_key(queue, seq, id)
  end
  if state == COMPLETED and has_flag(flags, HAS_PRIVATE) then
    call('HDEL', queue.key .. 'private', seq)
  end
  publish_end(queue, id, function()
    return 'e' .. join({ id, join(job_parts(queue, seq, true)) })
  end)
end

-- Remove jobs with all their records.
local function drop(queue, seqs, ids)
  local key, blocks = queue.key, queue.blocks
  for index = 1, #seqs do
    local block = sub(seqs[index], 1, BLOCK)
    blocks[block] = (blocks[block] or 0) - 1
  end
  queue.dirty = true
  call_batched('HDEL', key .. 'ids', ids)
  if has(queue, 'marks') then
    local marks = hmget(key .. 'marks', seqs)
    for index, seq in ipairs(seqs) do
      for _, name in ipairs(marks[index] and cmsgpack.unpack(marks[index])[2] or {}) do
        call('ZREM', key .. 'index:' .. name, seq)
      end
    end
    call_batched('HDEL', key .. 'marks', seqs)
  end
  if has(queue, 'extras') then
    for _, seq in ipairs(seqs) do
      if call('SREM', key .. 'extras', seq) == 1 then
        call('UNLINK', key .. 'extra:' .. seq, key .. 'errors:' .. seq, key .. 'log:' .. seq, key .. 'steps:' .. seq)
      end
    end
  end
  call_batched('HDEL', key .. 'jobs', seqs)
  for _, what in ipairs({ 'past', 'private' }) do
    if has(queue, what) then
      call_batched('HDEL', key .. what, seqs)
    end
  end
end

-- Remove the oldest finished jobs beyond retention, once there are more than `slack` of them.
local function prune_bucket(queue, state, beyond, limit, slack)
  local most, key = math.min(beyond, limit), bucket(queue, state)
  if beyond <= slack or most <= 0 then
    return 0
  end
  local members, seqs, ids = call('ZRANGE', key, 0, most - 1), {}, {}
  for index, member in ipairs(members) do
    seqs[index], ids[index] = sub(member, 1, 15), sub(member, 16)
  end
  local old = #members
  if state == COMPLETED and queue.keep_ms == 0 then
    tally(queue, COMPLETED, -old)
  else
    local ends = hmget(queue.key .. 'done', seqs)
    for index = 1, #members do
      local its_state, _, finished = unpack_bytes('>BBd', ends[index])
      -- Ordered by when they ended: all after the first one to keep are to be kept as well.
      if finished > now - queue.keep_ms then
        old = index - 1
        break
      end
      tally(queue, its_state, -1)
    end
    for index = #members, old + 1, -1 do
      seqs[index], ids[index] = nil, nil
    end
  end
  if old > 0 then
    call('ZREMRANGEBYRANK', key, 0, old - 1)
    call_batched('HDEL', queue.key .. 'done', seqs)
    drop(queue, seqs, ids)
  end
  return old
end

local function prune_queue(queue, limit, slack)
  local removed = prune_bucket(queue, COMPLETED, queue.completed - queue.keep_completed, limit, slack)
  local beyond = queue.failed + queue.cancelled - queue.keep_failed
  return removed + prune_bucket(queue, FAILED, beyond, limit - removed, slack)
end
