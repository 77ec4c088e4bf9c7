-- Apply an action to jobs whose state allows it.
-- request: action (also cancel_unless_requested), ids, reason, priority
-- returns { changed ids, unchanged ids }

-- Remove a PENDING job from the line, or from the delayed.
local function remove_waiting(job)
  local queue, group = job.queue, group_of(job.queue, job.group)
  if call('ZREM', queue.key .. 'ready:' .. job.group, job.seq) == 1 then
    leave(group, 1)
  else
    call('ZREM', queue.key .. 'delayed', job.seq)
    delay(group, -1)
  end
end

-- A workflow that has begun ends itself: make it due, and its next lease has the request.
local function carry_request(job)
  local queue = job.queue
  job.changes.c = request.reason
  if call('ZSCORE', queue.key .. 'ready:' .. job.group, job.seq) then
    save_changes(queue, job.seq, job.changes)
    queue.dirty = true
  else
    remove_waiting(job)
    wait(queue, job.seq, now, nil, job.changes)
  end
end

local actions = {}

function actions.cancel(job)
  local queue = job.queue
  if job.state == RUNNING then
    local worker = select(3, unpack_bytes('>c16dHc0', job.lease))
    call('HSET', queue.key .. 'stop', job.seq, cmsgpack.pack(worker, job.id, request.reason))
    call('SADD', PREFIX .. ':stopping', queue.name)
    queue.arrived, queue.dirty = ALL_WAITERS, true
    return true
  elseif job.state ~= PENDING then
    return false
  elseif not job.changes.c and has_begun(queue, job.seq, job.flags) then
    carry_request(job)
    return true
  end
  remove_waiting(job)
  local changes = job.changes
  local used = changes.u or 0
  forget_activity(changes)
  save_changes(queue, job.seq, changes)
  finish(queue, job.seq, job.id, job.flags, CANCELLED, request.reason, nil, -1, used, '')
  return true
end

function actions.cancel_unless_requested(job)
  local is_requested = job.changes.c or call('HEXISTS', job.queue.key .. 'stop', job.seq) == 1
  return not is_requested and actions.cancel(job)
end

local function remove_finished(job)
  tally(job.queue, job.state, -1, job.seq)
  call('HDEL', job.queue.key .. 'done', job.seq)
  call('ZREM', bucket(job.queue, job.state), job.seq .. job.id)
end

function actions.retry(job)
  local queue = job.queue
  if job.state == PENDING or job.state == RUNNING or job.state == COMPLETED then
    return false
  end
  if has_flag(job.flags, HAS_ACTIVE_KEY) then
    local marks = call('HGET', queue.key .. 'marks', job.seq)
    if not marks then
      set_aside(queue.name, 'job ' .. job.seq .. ' has lost its unique key')
      return false
    end
    local key = cmsgpack.unpack(marks)[1]
    local holder = call('HGET', queue.key .. 'unique', key)
    if holder and unpack_bytes('>d', holder) > now and sub(holder, 10) ~= job.id then
      return false
    end
    call('HSET', queue.key .. 'unique', key, pack('>dB', FOREVER, 1) .. job.id)
  end
  remove_finished(job)
  wait(queue, job.seq, now, nil, { p = job.changes.p })
  return true
end

function actions.delete(job)
  if job.state == RUNNING or job.state == PENDING and has_begun(job.queue, job.seq, job.flags) then
    return false
  elseif job.state == PENDING then
    remove_waiting(job)
    if has_flag(job.flags, IS_CHILD) then
      finish_number = finish_number + 1
      record_ends(job.queue, {
        { seq = job.seq, id = job.id, flags = job.flags, state = DELETED, number = finish_number },
      })
    end
    if has_flag(job.flags, HAS_ACTIVE_KEY) then
      free_key(job.queue, job.seq, job.id)
    end
  elseif job.state ~= COMPLETED and is_undelivered(job.queue, job.id) then
    return false
  else
    remove_finished(job)
  end
  drop(job.queue, { job.seq }, { job.id })
  publish_end(job.queue, job.id, function()
    return 'g' .. job.id
  end)
  return true
end

function actions.prioritise(job)
  if job.state ~= PENDING then
    return false
  end
  local queue = job.queue
  job.changes.p = request.priority
  save_changes(queue, job.seq, job.changes)
  call('ZADD', queue.key .. 'ready:' .. job.group, 'XX', -request.priority, job.seq)
  queue.dirty = true
  return true
end

function actions.run_now(job)
  if job.state ~= PENDING or job.changes.w or not call('ZSCORE', job.queue.key .. 'delayed', job.seq) then
    return false
  end
  remove_waiting(job)
  wait(job.queue, job.seq, now, nil, job.changes)
  return true
end

-- The job, or nil when its record is lost.
local function job_of(queue, id, seq)
  local record = record_of(queue, seq)
  if not record then
    return nil
  end
  local flags, _, group = job_header(record)
  local lease = call('HGET', queue.key .. 'leases', seq)
  local done = call('HGET', queue.key .. 'done', seq)
  return {
    queue = queue, id = id, seq = seq, flags = flags, group = group, lease = lease, changes = changes_of(queue, seq),
    state = lease and RUNNING or done and byte(done, 1) or PENDING,
  }
end

command('change', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  local queue_names = queues_holding(request.ids)
  local changed, unchanged = {}, {}
  for index, id in ipairs(request.ids) do
    local queue = queue_names[index] and known_queue(queue_names[index])
    -- Read again: an id that is named twice may have been deleted by now.
    local seq = queue and seq_of(queue, id)
    if seq then
      local job = job_of(queue, id, seq)
      local list = job and actions[request.action](job) and changed or unchanged
      list[#list + 1] = id
    end
  end
  flush()
  return { changed, unchanged }
end)
