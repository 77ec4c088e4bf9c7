-- One job in its queue: its place, its end and its removal.
-- past: changes since the insert, stored only for jobs that differ from a new one:
-- u attempts used, d deaths, r run_at, w waiting for, k conditions to wake (see _history), s signal delivered, p priority,
-- c cancel request that a workflow has carried over from an earlier attempt
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
  changes.r, changes.w = run_at, run_at > now and waiting_for or nil
  changes.k = changes.w and changes.k
  save_changes(queue, seq, changes)
  local record = record_of(queue, seq)
  if record then
    local _, priority, group = job_header(record)
    enter(group_of(queue, group), seq, changes.p or priority, run_at)
  end
end

-- Make a parked job due.
local function unpark(queue, seq, changes)
  local record = record_of(queue, seq)
  call('ZREM', queue.key .. 'delayed', seq)
  if record then
    delay(group_of(queue, (select(3, job_header(record)))), -1)
  end
  wait(queue, seq, now, nil, changes)
end

-- Make a job due if it is parked and one of its conditions holds. Returns whether it woke.
local function wake(queue, seq, changes)
  local holds = changes.w and changes.k and may_wake(queue, seq, changes.k)
  if holds then
    unpark(queue, seq, changes)
  end
  return holds
end

-- The first members of several sorted sets of sequences, by (score, sequence), without reading all of any.
local merge
do
  local READ_AHEAD = 20

  -- Advance to the next member of a source: { key, seqs (those taken), skipped }. Returns whether its score is within the
  -- limit.
  local function advance(source, limit)
    local taken = #source.seqs
    if taken % READ_AHEAD == 0 then
      local from = (source.skipped or 0) + taken
      source.ahead, source.position = call('ZRANGE', source.key, from, from + READ_AHEAD - 1, 'WITHSCORES'), -1
    end
    source.position = source.position + 2
    source.seq, source.score = source.ahead[source.position], tonumber(source.ahead[source.position + 1])
    return source.seq and source.score <= limit
  end

  local function is_earlier(one, other)
    if one.score ~= other.score then
      return one.score < other.score
    end
    return one.seq < other.seq
  end

  -- Take at most `most` members with scores up to `limit`; each source keeps its own in `seqs`. Returns flat: source, sequence.
  function merge(sources, most, limit)
    local open, found, count = {}, {}, 0 -- `open` is in descending order
    local function add(source)
      source.seqs = source.seqs or {}
      if not advance(source, limit) then
        return
      end
      local low, high = 1, #open + 1
      while low < high do
        local middle = math.floor((low + high) / 2)
        if is_earlier(source, open[middle]) then
          low = middle + 1
        else
          high = middle
        end
      end
      table.insert(open, low, source)
    end
    for _, source in ipairs(sources) do
      add(source)
    end
    while count < most and #open > 0 do
      local source = table.remove(open)
      count = count + 1
      found[2 * count - 1], found[2 * count] = source, source.seq
      source.seqs[#source.seqs + 1] = source.seq
      add(source)
    end
    return found
  end
end

-- Put due jobs in line, by (run_at, sequence). However many are due in however many queues, one command reads and moves a
-- bounded number of them, since it blocks the server for all others.
local promote
do
  local PROMOTE_LIMIT, PROMOTED_QUEUES = 500, 50

  -- The due jobs to move, as `merge` returns them, and their sources.
  local function due_jobs()
    local names = call('ZRANGEBYSCORE', PREFIX .. ':due', '-inf', now, 'WITHSCORES', 'LIMIT', 0, PROMOTED_QUEUES + 1)
    local sources = {}
    for index = 1, math.min(#names, 2 * PROMOTED_QUEUES), 2 do
      local queue = queue_of(names[index])
      -- Also when its entry was wrong: it is corrected at the end.
      queue.delayed_changed, queue.dirty = true, true
      if queue.paused < SET_ASIDE then
        sources[#sources + 1] = { key = queue.key .. 'delayed', queue = queue }
      end
    end
    -- The queues that were not read may have jobs from this time on.
    local horizon = tonumber(names[2 * PROMOTED_QUEUES + 2] or now)
    return merge(sources, PROMOTE_LIMIT, horizon), sources
  end

  function promote()
    if due > now then
      return
    end
    local found, sources = due_jobs()
    local records, ready, groups = {}, {}, {}
    for _, source in ipairs(sources) do
      for index, record in ipairs(hmget(source.queue.key .. 'jobs', source.seqs)) do
        if record then
          records[source.seqs[index]] = record
        else
          set_aside(source.queue.name, 'job ' .. source.seqs[index] .. ' has no record')
        end
      end
      call_batched('ZREM', source.queue.key .. 'delayed', source.seqs)
    end
    for index = 1, #found, 2 do
      local queue, seq = found[index].queue, found[index + 1]
      if records[seq] then
        local _, priority, name = job_header(records[seq])
        local changes, group = changes_of(queue, seq), group_of(queue, name)
        if changes.w then
          changes.w, changes.k = nil, nil
          save_changes(queue, seq, changes)
        end
        local line = ready[group]
        if not line then
          line = {}
          ready[group] = line
          groups[#groups + 1] = group
        end
        line[#line + 1] = -(changes.p or priority)
        line[#line + 1] = seq
        delay(group, -1)
        arrive(group, 1)
      end
    end
    for _, group in ipairs(groups) do
      call_batched('ZADD', group.queue.key .. 'ready:' .. group.name, ready[group])
    end
  end
end

-- The sequence of a job of this queue as text, or false.
local function seq_of(queue, id)
  local value = call('HGET', queue.key .. 'ids', id)
  return value and sub(value, 1, 15)
end

-- The parts from which the client builds its view of the job, each a byte string; its record is empty if it was lost.
local RECORD = 3

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
  local parts = {
    queue.name, seq, call('HGET', key .. 'jobs', seq) or '', part('past'), part('leases'), part('done'),
    part('outside'), part('stop'), progress, errors, lines, steps,
  }
  -- Only for children: clients of schema 2, which have none, expect no more parts.
  if full and has_flag(byte(parts[RECORD], FLAGS) or 0, IS_CHILD) then
    parts[#parts + 1] = part('parents')
  end
  return parts
end

-- Publish the end of a job to its waiters, with the whole job. Returns whether there were any.
local function publish_end(queue, id, message)
  local handles = has(queue, 'awaited') and call('HGET', queue.key .. 'awaited', id)
  if handles then
    for handle in string.gmatch(handles, '%S+') do
      publish(handle, message())
    end
    call('HDEL', queue.key .. 'awaited', id)
  end
  return handles and true
end

-- Free an ACTIVE key when its job ends or is removed.
local function free_key(queue, seq, id)
  local packed = call('HGET', queue.key .. 'marks', seq)
  if not packed then
    set_aside(queue.name, 'job ' .. seq .. ' has lost its unique key')
    return
  end
  local marks = cmsgpack.unpack(packed)
  local holder = call('HGET', queue.key .. 'unique', marks[1])
  if holder and byte(holder, 9) == 1 and sub(holder, 10) == id then
    call('HDEL', queue.key .. 'unique', marks[1])
  end
end

local function add_error(queue, seq, error)
  call('RPUSH', queue.key .. 'errors:' .. seq, pack('>d', now) .. error)
  add_extra(queue, seq)
end

-- Count the end of a job, or its removal.
local function tally(queue, state, change, seq)
  local count = state == COMPLETED and 'completed' or state == CANCELLED and 'cancelled' or 'failed'
  queue[count] = queue[count] + change
  contents.count_end(queue, sub(seq, 1, BLOCK), state == COMPLETED, change)
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
  tally(queue, state, 1, seq)
  if state ~= COMPLETED then
    contents.note(queue, sub(seq, 1, BLOCK), 's' .. state)
  end
  if has_flag(flags, HAS_ACTIVE_KEY) then
    free_key(queue, seq, id)
  end
  if state == COMPLETED and has_flag(flags, HAS_PRIVATE) then
    call('HDEL', queue.key .. 'private', seq)
  end
  if has_flag(flags, IS_CHILD) or state ~= COMPLETED and has_begun(queue, seq, flags) then
    local one = { seq = seq, id = id, flags = flags, state = state, number = finish_number, reason = reason }
    one.result = state == COMPLETED and result or nil
    record_ends(queue, { one })
  end
  local is_awaited = publish_end(queue, id, function()
    return 'e' .. join({ id, join(job_parts(queue, seq, true)) })
  end)
  if is_awaited and (math.min(queue.keep_completed_ms, queue.keep_failed_ms) < 60000 or queue.keep_at_most < 100000) then
    -- Retention may remove it soon: a waiter that has missed the message gets some seconds to ask.
    call('ZADD', queue.key .. 'kept', after(15000), seq)
    queue.has.kept = true
  end
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
        drop_extras(queue, seq)
      end
    end
  end
  call_batched('HDEL', key .. 'jobs', seqs)
  for _, what in ipairs({ 'past', 'private', 'parents' }) do
    if has(queue, what) then
      call_batched('HDEL', key .. what, seqs)
    end
  end
end
