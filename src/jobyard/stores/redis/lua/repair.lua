-- Rebuild the places, counts and indexes of one queue from the records of its jobs, leases and ends.
-- request: name
local queue, key, jobs, groups

local function each(flat, visit)
  for index = 1, #flat, 2 do
    visit(flat[index], flat[index + 1])
  end
end

-- The group, whose counts start from zero.
local function counted(name)
  local group = groups[name]
  if not group then
    group = remember_group(queue, name, call('HGET', key .. 'groups', name))
    group.stored, group.waiting, group.delayed, group.running, group.ready = false, 0, 0, 0, {}
    groups[name] = group
  end
  return group
end

-- Delete the fields of jobs that have no record.
local function forget_unknown(what)
  local unknown = {}
  for _, seq in ipairs(call('HKEYS', key .. what)) do
    if not jobs[seq] then
      unknown[#unknown + 1] = seq
    end
  end
  call_batched('HDEL', key .. what, unknown)
end

local function load_jobs()
  jobs, groups = {}, {}
  each(call('HGETALL', key .. 'jobs'), function(seq, value)
    local flags, priority, group, run_at = job_header(value)
    local left = flags
    -- Nothing can be freed for a job whose tags and unique key are lost.
    if flags % (2 * HAS_MARKS) >= HAS_ACTIVE_KEY and call('HEXISTS', key .. 'marks', seq) == 0 then
      left = left - flags % (2 * HAS_MARKS) + flags % HAS_ACTIVE_KEY
    end
    -- No parent can be told of the end of a child that has lost it.
    if has_flag(flags, IS_CHILD) and call('HEXISTS', key .. 'parents', seq) == 0 then
      left = left - IS_CHILD
    end
    if left ~= flags then
      flags = left
      call('HSET', key .. 'jobs', seq, sub(value, 1, 16) .. string.char(flags) .. sub(value, 18))
    end
    jobs[seq] = { id = id_in(value, group), flags = flags, priority = priority, group = group, run_at = run_at }
  end)
  for _, what in ipairs({ 'past', 'private', 'parents', 'marks', 'done', 'leases', 'outside', 'stop' }) do
    forget_unknown(what)
  end
  for _, seq in ipairs(call('SMEMBERS', key .. 'extras')) do
    if not jobs[seq] then
      call('SREM', key .. 'extras', seq)
      drop_extras(queue, seq)
    end
  end
end

local function rebuild_ids()
  local ids = {}
  for seq, job in pairs(jobs) do
    ids[#ids + 1] = job.id
    ids[#ids + 1] = #ids == 1 and pad(seq) or seq
  end
  call('UNLINK', key .. 'ids', key .. 'block', key .. 'blocks', key .. 'block_ends')
  call_batched('HSET', key .. 'ids', ids)
  queue.blocks, queue.ends = {}, {}
  for seq in pairs(jobs) do
    local block = sub(seq, 1, BLOCK)
    queue.blocks[block] = (queue.blocks[block] or 0) + 1
    contents.note_names(queue, block, call('HGET', key .. 'jobs', seq), 17)
    sequence = math.max(sequence, tonumber(seq))
  end
end

-- Ended jobs, in their retention lists; one that is missing there counts as ended last.
local function rebuild_ends()
  queue.completed, queue.failed, queue.cancelled = 0, 0, 0
  local missing, listed = {}, { [key .. 'completed'] = {}, [key .. 'failed'] = {} }
  each(call('HGETALL', key .. 'done'), function(seq, value)
    local state, _, finished = unpack_bytes('>BBd', value)
    jobs[seq].state = state
    tally(queue, state, 1, seq)
    if state ~= COMPLETED then
      contents.note(queue, sub(seq, 1, BLOCK), 's' .. state)
    end
    local list, member = bucket(queue, state), seq .. jobs[seq].id
    listed[list][member] = true
    if not call('ZSCORE', list, member) then
      missing[#missing + 1] = { list, member, finished }
    end
  end)
  for list, members in pairs(listed) do
    for _, member in ipairs(call('ZRANGE', list, 0, -1)) do
      if not members[member] then
        call('ZREM', list, member)
      end
    end
  end
  table.sort(missing, function(one, other)
    return one[3] < other[3]
  end)
  for _, one in ipairs(missing) do
    finish_number = finish_number + 1
    call('ZADD', one[1], finish_number, one[2])
  end
end

-- Leases of jobs that have not ended. One without an end gets a minute, in which its worker renews it.
local function rebuild_leases()
  queue.running = 0
  each(call('HGETALL', key .. 'leases'), function(seq, value)
    local lease, job = unpack_lease(value), jobs[seq]
    if job.state then
      call('HDEL', key .. 'leases', seq)
      call('HDEL', key .. 'outside', seq)
      call('HDEL', key .. 'stop', seq)
      return
    end
    job.state, job.worker = RUNNING, lease.worker
    local flags = job.flags + (call('HEXISTS', key .. 'past', seq) == 1 and HAS_CHANGES or 0)
    local head, tail = sub(value, 1, 26 + #lease.worker), pack('>IBH', lease.attempt, flags, #lease.group)
    call('HSET', key .. 'leases', seq, pad(head .. tail .. lease.group))
    run(counted(lease.group), 1)
    call('SADD', key .. 'holders', lease.worker)
    if call('HEXISTS', key .. 'outside', seq) == 0 and not call('ZSCORE', key .. 'lease:' .. lease.worker, seq) then
      call('ZADD', key .. 'lease:' .. lease.worker, after(60000), seq)
    end
  end)
  for _, worker in ipairs(call('SMEMBERS', key .. 'holders')) do
    for _, seq in ipairs(call('ZRANGE', key .. 'lease:' .. worker, 0, -1)) do
      if not jobs[seq] or jobs[seq].worker ~= worker or call('HEXISTS', key .. 'outside', seq) == 1 then
        call('ZREM', key .. 'lease:' .. worker, seq)
      end
    end
  end
  for _, what in ipairs({ 'outside', 'stop' }) do
    for _, seq in ipairs(call('HKEYS', key .. what)) do
      if jobs[seq].state ~= RUNNING then
        call('HDEL', key .. what, seq)
      end
    end
  end
  call(call('EXISTS', key .. 'stop') == 1 and 'SADD' or 'SREM', PREFIX .. ':stopping', queue.name)
end

-- All other jobs wait: in line if they are due, otherwise among the delayed.
local function rebuild_places()
  queue.waiting, queue.delayed = 0, 0
  local delayed = {}
  each(call('ZRANGE', key .. 'delayed', 0, -1, 'WITHSCORES'), function(seq, score)
    delayed[seq] = tonumber(score)
  end)
  for _, name in ipairs(call('HKEYS', key .. 'groups')) do
    call('UNLINK', key .. 'ready:' .. name)
  end
  for _, job in pairs(jobs) do
    local group = counted(job.group)
    if not group.is_emptied then
      group.is_emptied = true
      call('UNLINK', key .. 'ready:' .. job.group)
    end
  end
  local waits = {}
  for seq, job in pairs(jobs) do
    if not job.state then
      local changes, group = changes_of(queue, seq), counted(job.group)
      local run_at = delayed[seq] or changes.r or job.run_at
      if run_at > now then
        waits[#waits + 1] = run_at
        waits[#waits + 1] = seq
        delay(group, 1)
      else
        if changes.w then
          changes.w, changes.k = nil, nil
          save_changes(queue, seq, changes)
        end
        group.ready[#group.ready + 1] = -(changes.p or job.priority)
        group.ready[#group.ready + 1] = seq
        group.waiting, queue.waiting = group.waiting + 1, queue.waiting + 1
      end
    end
  end
  call('UNLINK', key .. 'delayed')
  call_batched('ZADD', key .. 'delayed', waits)
  for name, group in pairs(groups) do
    call_batched('ZADD', key .. 'ready:' .. name, group.ready)
  end
end

-- A key that is held while its job is active: free it if it is not, and hold it again if it was lost.
local function rebuild_unique()
  local active = {}
  for seq, job in pairs(jobs) do
    if has_flag(job.flags, HAS_ACTIVE_KEY) and (not job.state or job.state == RUNNING) then
      active[job.id] = cmsgpack.unpack(call('HGET', key .. 'marks', seq))[1]
    end
  end
  each(call('HGETALL', key .. 'unique'), function(name, holder)
    if byte(holder, 9) == 1 and active[sub(holder, 10)] ~= name then
      call('HDEL', key .. 'unique', name)
    end
  end)
  for id, name in pairs(active) do
    call('HSETNX', key .. 'unique', name, pack('>dB', FOREVER, 1) .. id)
  end
end

-- Keep the settings of groups that have no jobs; a group that lost its row goes to the end of the line.
local function rebuild_groups()
  for _, name in ipairs(call('HKEYS', key .. 'groups')) do
    counted(name)
  end
  call('UNLINK', key .. 'groups', key .. 'names', key .. 'line')
  for _, group in pairs(groups) do
    turn = math.max(turn, queue.turn, group.turn)
  end
  for _, group in pairs(groups) do
    if group.waiting > 0 and group.turn == 0 then
      turn = turn + 1
      group.turn = turn
    end
    group.dirty, group.open = true, false
  end
end

-- The order of entries, from the entries. Numbers go on above all of them.
local function rebuild_history(seq, kind)
  local hash, order_key = key .. kind .. ':' .. seq, key .. kind .. '_order:' .. seq
  local order, last = {}, tonumber(call('HGET', key .. 'extra:' .. seq, 'entries') or 0) or 0
  each(call('HGETALL', hash), function(field, value)
    local number, size = unpack_bytes('>d', value), unpack_bytes('>I', field)
    last = math.max(last, number)
    order[#order + 1] = 0
    order[#order + 1] = sub(field, 1, 4 + size) .. pack('>d', number) .. sub(field, 5 + size)
  end)
  call('UNLINK', order_key)
  call_batched('ZADD', order_key, order)
  if last > 0 then
    call('HSET', key .. 'extra:' .. seq, 'entries', format('%.0f', last))
  end
end

local function rebuild_histories()
  for _, seq in ipairs(call('SMEMBERS', key .. 'extras')) do
    rebuild_history(seq, 'history')
    rebuild_history(seq, 'signals')
  end
end

-- The order of ends, from the ends.
local function rebuild_ended()
  local order = {}
  each(call('HGETALL', key .. 'ended'), function(id, row)
    local number = unpack_bytes('>d', row)
    finish_number = math.max(finish_number, number)
    order[#order + 1] = number
    order[#order + 1] = id
  end)
  call('UNLINK', key .. 'ended_order')
  call_batched('ZADD', key .. 'ended_order', order)
  call(order[1] and 'SADD' or 'SREM', PREFIX .. ':ended', queue.name)
end

command('repair', { 'allow-oom' }, function(_, args)
  begin_line(args)
  queue = known_queue(request.name)
  key = queue.key
  load_jobs()
  rebuild_ids()
  rebuild_ends()
  rebuild_leases()
  rebuild_places()
  rebuild_unique()
  rebuild_groups()
  rebuild_histories()
  rebuild_ended()
  queue.reason, queue.paused = nil, queue.paused % SET_ASIDE
  call('HDEL', PREFIX .. ':damaged', queue.name)
  if queue.waiting > 0 and queue.turn == 0 then
    turn = turn + 1
    queue.turn = turn
  end
  queue.dirty, queue.delayed_changed, queue.was_waiting, queue.was_turn = true, true, -1, -1
  queue.arrived = ALL_WAITERS
  flush()
  return revision
end)
