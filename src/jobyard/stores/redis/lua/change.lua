-- What people may do to jobs, each in the states that allow it.
-- asks: action, ids, reason, priority
-- answers { changed ids, unchanged ids }
-- Take a PENDING job out of the line, or out of the delayed.
local function leave_waiting(job)
  local queue, group = job.queue, group_of(job.queue, job.group)
  if call('ZREM', queue.key .. 'ready:' .. job.group, job.seq) == 1 then
    leave(group)
  else
    call('ZREM', queue.key .. 'delayed', job.seq)
    delay(group, -1)
  end
end

local actions = {}

function actions.cancel(job)
  local queue = job.queue
  if job.state == RUNNING then
    local worker = select(3, unpack_bytes('>c16dHc0', job.lease))
    call('HSET', queue.key .. 'stop', job.seq, cmsgpack.pack(worker, job.id, ask.reason))
    call('SADD', ROOT .. ':stopping', queue.name)
    queue.arrived, queue.dirty = EVERYBODY, true
    return true
  elseif job.state ~= PENDING then
    return false
  end
  leave_waiting(job)
  local past = job.past
  local used = past.u or 0
  past.u, past.w, past.s = nil, nil, nil
  keep_past(queue, job.seq, past)
  finish(queue, job.seq, job.id, job.flags, CANCELLED, ask.reason, nil, -1, used, '')
  return true
end

local function leave_finished(job)
  tally(job.queue, job.state, -1)
  call('HDEL', job.queue.key .. 'done', job.seq)
  call('ZREM', bucket(job.queue, job.state), job.seq .. job.id)
end

function actions.retry(job)
  local queue = job.queue
  if job.state == PENDING or job.state == RUNNING or job.state == COMPLETED then
    return false
  end
  if carries(job.flags, HAS_ACTIVE_KEY) then
    local key = cmsgpack.unpack(call('HGET', queue.key .. 'marks', job.seq))[1]
    local holder = call('HGET', queue.key .. 'unique', key)
    if holder and unpack_bytes('>d', holder) > now and sub(holder, 10) ~= job.id then
      return false
    end
    call('HSET', queue.key .. 'unique', key, pack('>dB', FOREVER, 1) .. job.id)
  end
  leave_finished(job)
  wait(queue, job.seq, now, nil, { p = job.past.p })
  return true
end

function actions.delete(job)
  if job.state == RUNNING then
    return false
  elseif job.state == PENDING then
    leave_waiting(job)
    if carries(job.flags, HAS_ACTIVE_KEY) then
      free_key(job.queue, job.seq, job.id)
    end
  else
    leave_finished(job)
  end
  drop(job.queue, { job.seq }, { job.id })
  tell_end(job.queue, job.id, function()
    return 'g' .. job.id
  end)
  return true
end

function actions.prioritise(job)
  if job.state ~= PENDING then
    return false
  end
  local queue = job.queue
  job.past.p = ask.priority
  keep_past(queue, job.seq, job.past)
  call('ZADD', queue.key .. 'ready:' .. job.group, 'XX', -ask.priority, job.seq)
  queue.dirty = true
  return true
end

function actions.run_now(job)
  if job.state ~= PENDING or job.past.w or not call('ZSCORE', job.queue.key .. 'delayed', job.seq) then
    return false
  end
  leave_waiting(job)
  wait(job.queue, job.seq, now, nil, job.past)
  return true
end

local function job_of(queue, id, seq)
  local flags, _, group = header(call('HGET', queue.key .. 'jobs', seq))
  local lease = call('HGET', queue.key .. 'leases', seq)
  local done = call('HGET', queue.key .. 'done', seq)
  return {
    queue = queue, id = id, seq = seq, flags = flags, group = group, lease = lease, past = past_of(queue, seq),
    state = lease and RUNNING or done and byte(done, 1) or PENDING,
  }
end

command('change', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  local homes = {}
  for _, name in ipairs(all_queues()) do
    local found = fetch(ROOT .. ':{' .. name .. '}:ids', ask.ids)
    for index = 1, #ask.ids do
      homes[index] = homes[index] or found[index] and name
    end
  end
  local changed, unchanged = {}, {}
  for index, id in ipairs(ask.ids) do
    local queue = homes[index] and known_queue(homes[index])
    -- Asked again: an id named twice may be gone by now.
    local seq = queue and seq_of(queue, id)
    if seq then
      local list = actions[ask.action](job_of(queue, id, seq)) and changed or unchanged
      list[#list + 1] = id
    end
  end
  flush()
  return { changed, unchanged }
end)
