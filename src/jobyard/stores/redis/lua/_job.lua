-- One job in its queue: where it stands, what it carries along, and how it leaves.
-- jobs: created (8) run_at (8) flags (1) priority (8) group (2 + n), then what only the client reads.
local HAS_PRIVATE, HAS_ACTIVE_KEY, HAS_MARKS, HAS_PAST = 1, 2, 4, 8
local PENDING, COMPLETED, FAILED, TIMEOUT, CANCELLED, RUNNING = 0, 1, 2, 3, 4, 5
local BLOCK = 12 -- sequences that begin alike, a thousand of them

local function name_of(number)
  return format('%015d', number)
end

-- flags, priority, group, run_at as they were handed in
local function header(value)
  local _, run_at, flags, priority, group = unpack_bytes('>ddBdHc0', value)
  return flags, priority, group, run_at
end

local function carries(flags, what)
  return flags % (2 * what) >= what
end

-- What a job has behind it, kept only where it differs from a new job's:
-- u attempts used, d deaths, r run_at, w waiting for, s signal delivered, p priority
local function past_of(queue, seq)
  if not has(queue, 'past') then
    return {}
  end
  local packed = call('HGET', queue.key .. 'past', seq)
  return packed and cmsgpack.unpack(packed) or {}
end

local function keep_past(queue, seq, past)
  if past.u == 0 then past.u = nil end
  if past.d == 0 then past.d = nil end
  if next(past) then
    call('HSET', queue.key .. 'past', seq, cmsgpack.pack(past))
    queue.has.past = true
  elseif has(queue, 'past') then
    call('HDEL', queue.key .. 'past', seq)
  end
end

-- A PENDING job takes its place: in line if it is due, else among the delayed.
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

-- Back to waiting, with another time; parked on a signal if one is given.
local function wait(queue, seq, run_at, waiting_for, past)
  local _, priority, group = header(call('HGET', queue.key .. 'jobs', seq))
  past.r, past.w = run_at, run_at > now and waiting_for or nil
  keep_past(queue, seq, past)
  enter(group_of(queue, group), seq, past.p or priority, run_at)
end

-- Let jobs whose time has come join, by (run_at, sequence); so many per call that nobody else waits long.
local PROMOTE_AT_ONCE = 2000

local function promote()
  if due > now then
    return
  end
  local joining = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', ROOT .. ':due', '-inf', now)) do
    local queue = queue_of(name)
    local some = call('ZRANGEBYSCORE', queue.key .. 'delayed', '-inf', now, 'WITHSCORES', 'LIMIT', 0, PROMOTE_AT_ONCE)
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
  for index = 1, math.min(#joining, PROMOTE_AT_ONCE) do
    local queue, seq = joining[index][1], joining[index][2]
    local _, priority, name = header(call('HGET', queue.key .. 'jobs', seq))
    local past = past_of(queue, seq)
    if past.w then
      past.w = nil
      keep_past(queue, seq, past)
    end
    local group = group_of(queue, name)
    call('ZREM', queue.key .. 'delayed', seq)
    delay(group, -1)
    enter(group, seq, past.p or priority, now)
  end
end

-- The sequence of a job of this queue, as it is named everywhere, or false.
local function seq_of(queue, id)
  local value = call('HGET', queue.key .. 'ids', id)
  return value and sub(value, 1, 15)
end

-- Everything the client needs to show the job, each part a byte string.
local function see(queue, seq, whole)
  local key = queue.key
  local function part(what)
    return has(queue, what) and call('HGET', key .. what, seq) or ''
  end
  local errors, lines, steps, progress = '', '', '', ''
  if has(queue, 'extras') and call('SISMEMBER', key .. 'extras', seq) == 1 then
    errors = join(call('LRANGE', key .. 'errors:' .. seq, 0, -1))
    progress = call('HGET', key .. 'extra:' .. seq, 'progress') or ''
    if whole then
      lines = join(call('LRANGE', key .. 'log:' .. seq, 0, -1))
      steps = join(call('HGETALL', key .. 'steps:' .. seq))
    end
  end
  return {
    queue.name, seq, call('HGET', key .. 'jobs', seq) or '', part('past'), part('leases'), part('done'),
    part('outside'), part('stop'), progress, errors, lines, steps,
  }
end

-- Those who wait for the job's end are sent the whole job: retention may take it away at once.
local function tell_end(queue, id, message)
  if not has(queue, 'awaited') then
    return
  end
  local handles = call('HGET', queue.key .. 'awaited', id)
  if handles then
    for handle in string.gmatch(handles, '%S+') do
      call('PUBLISH', ROOT .. ':to:' .. handle, message())
    end
    call('HDEL', queue.key .. 'awaited', id)
  end
end

-- An ACTIVE key is free when its job has ended or is gone.
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
local function ending(state, reason, started, attempt, worker)
  local head = pack('>BBddIH', state, reason and 1 or 0, now, started, attempt, #worker) .. worker
  return reason and head .. pack('>I', #reason) .. reason or head
end

-- Write the end of a job: its row among the finished, its queue's counts, its unique key.
local function finish(queue, seq, id, flags, state, reason, result, started, attempt, worker)
  finish_number = finish_number + 1
  local head = ending(state, reason, started, attempt, worker)
  call('HSET', queue.key .. 'done', seq, pad(head .. pack('>I', #(result or '')) .. (result or '')))
  queue.has.done = true
  call('ZADD', bucket(queue, state), finish_number, seq .. id)
  tally(queue, state, 1)
  if carries(flags, HAS_ACTIVE_KEY) then
    free_key(queue, seq, id)
  end
  if state == COMPLETED and carries(flags, HAS_PRIVATE) then
    call('HDEL', queue.key .. 'private', seq)
  end
  tell_end(queue, id, function()
    return 'e' .. join({ id, join(see(queue, seq, true)) })
  end)
end

-- Jobs leave with everything that hangs on them.
local function drop(queue, seqs, ids)
  local key, blocks = queue.key, queue.blocks
  for index = 1, #seqs do
    local block = sub(seqs[index], 1, BLOCK)
    blocks[block] = (blocks[block] or 0) - 1
  end
  queue.dirty = true
  many('HDEL', key .. 'ids', ids)
  if has(queue, 'marks') then
    local marks = fetch(key .. 'marks', seqs)
    for index, seq in ipairs(seqs) do
      for _, name in ipairs(marks[index] and cmsgpack.unpack(marks[index])[2] or {}) do
        call('ZREM', key .. 'index:' .. name, seq)
      end
    end
    many('HDEL', key .. 'marks', seqs)
  end
  if has(queue, 'extras') then
    for _, seq in ipairs(seqs) do
      if call('SREM', key .. 'extras', seq) == 1 then
        call('UNLINK', key .. 'extra:' .. seq, key .. 'errors:' .. seq, key .. 'log:' .. seq, key .. 'steps:' .. seq)
      end
    end
  end
  many('HDEL', key .. 'jobs', seqs)
  for _, what in ipairs({ 'past', 'private' }) do
    if has(queue, what) then
      many('HDEL', key .. what, seqs)
    end
  end
end

-- Remove the oldest finished jobs beyond the counts, once there are more than `slack` of them.
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
    local ends = fetch(queue.key .. 'done', seqs)
    for index = 1, #members do
      local its_state, _, finished = unpack_bytes('>BBd', ends[index])
      -- They stand in the order in which they ended: after the first young one all are young.
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
    many('HDEL', queue.key .. 'done', seqs)
    drop(queue, seqs, ids)
  end
  return old
end

local function prune_queue(queue, limit, slack)
  local removed = prune_bucket(queue, COMPLETED, queue.completed - queue.keep_completed, limit, slack)
  local beyond = queue.failed + queue.cancelled - queue.keep_failed
  return removed + prune_bucket(queue, FAILED, beyond, limit - removed, slack)
end
