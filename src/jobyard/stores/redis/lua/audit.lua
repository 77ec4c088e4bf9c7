-- Recount everything of one queue.
-- request: name
-- returns each discrepancy as a sentence
command('audit', { 'no-writes' }, function(_, args)
  begin_line(args)
  local queue = known_queue(request.name)
  if not queue then
    return { 'queue ' .. request.name .. ' is listed but has no row' }
  end
  local key, wrong = queue.key, {}

  local function compare(what, kept, counted)
    if kept ~= counted then
      wrong[#wrong + 1] = format('queue %s: %s is %d, but %d were counted', queue.name, what, kept, counted)
    end
  end

  local function pairs_of(flat)
    local found = {}
    for index = 1, #flat, 2 do
      found[flat[index]] = flat[index + 1]
    end
    return found
  end

  if reason_aside(queue) then
    wrong[1] = format('queue %s is set aside: %s', queue.name, reason_aside(queue))
  end
  local places, groups = {}, {}
  local function stands(seq, group, what)
    places[seq] = (places[seq] or 0) + 1
    local counts = groups[group]
    if not counts then
      counts = { waiting = 0, delayed = 0, running = 0 }
      groups[group] = counts
    end
    if counts[what] then
      counts[what] = counts[what] + 1
    end
  end

  local values = pairs_of(call('HGETALL', key .. 'jobs'))
  local rows = pairs_of(call('HGETALL', key .. 'groups'))
  local waiting, jobs = 0, 0
  local blocks, ends_of_blocks = {}, {}
  for seq, value in pairs(values) do
    jobs = jobs + 1
    local block = sub(seq, 1, BLOCK)
    blocks[block] = (blocks[block] or 0) + 1
    ends_of_blocks[block] = ends_of_blocks[block] or { completed = 0, others = 0 }
    local _, _, name = job_header(value)
    if not rows[name] then
      rows[name] = false
    end
  end
  for name in pairs(rows) do
    for _, seq in ipairs(call('ZRANGE', key .. 'ready:' .. name, 0, -1)) do
      waiting = waiting + 1
      stands(seq, name, 'waiting')
    end
  end
  local function group_name(seq)
    return values[seq] and select(3, job_header(values[seq])) or ''
  end
  local delayed = call('ZRANGE', key .. 'delayed', 0, -1)
  for _, seq in ipairs(delayed) do
    stands(seq, group_name(seq), 'delayed')
  end
  local leases, running, ends = call('HGETALL', key .. 'leases'), 0, 0
  for index = 1, #leases, 2 do
    running = running + 1
    local seq, lease = leases[index], unpack_lease(leases[index + 1])
    stands(seq, lease.group, 'running')
    local expires = call('ZSCORE', key .. 'lease:' .. lease.worker, seq)
    if not expires and call('HEXISTS', key .. 'outside', seq) == 0 then
      wrong[#wrong + 1] = format('job %s is RUNNING, but its lease has no expiry', seq)
    end
  end
  for _, worker in ipairs(call('SMEMBERS', key .. 'holders')) do
    ends = ends + call('ZCARD', key .. 'lease:' .. worker)
  end
  compare('number of leases with an expiry', ends, running - call('HLEN', key .. 'outside'))
  local counts = { [COMPLETED] = 0, [FAILED] = 0, [TIMEOUT] = 0, [CANCELLED] = 0 }
  local done = call('HGETALL', key .. 'done')
  for index = 1, #done, 2 do
    local state = byte(done[index + 1], 1)
    counts[state] = (counts[state] or 0) + 1
    local of_block, what = ends_of_blocks[sub(done[index], 1, BLOCK)], state == COMPLETED and 'completed' or 'others'
    if of_block then
      of_block[what] = of_block[what] + 1
    end
    stands(done[index], group_name(done[index]), 'done')
  end
  compare('waiting', queue.waiting, waiting)
  compare('delayed', queue.delayed, #delayed)
  compare('running', queue.running, running)
  compare('completed', queue.completed, counts[COMPLETED])
  compare('failed', queue.failed, counts[FAILED] + counts[TIMEOUT])
  compare('cancelled', queue.cancelled, counts[CANCELLED])
  compare('retention list of completed', call('ZCARD', key .. 'completed'), counts[COMPLETED])
  compare('retention list of failed', call('ZCARD', key .. 'failed'), #done / 2 - counts[COMPLETED])
  compare('ids', call('HLEN', key .. 'ids'), jobs)
  for name, row in pairs(rows) do
    local counted = groups[name] or { waiting = 0, delayed = 0, running = 0 }
    local group = remember_group(queue, name, row or nil)
    for _, what in ipairs({ 'waiting', 'delayed', 'running' }) do
      compare('group ' .. name .. ' ' .. what, group[what], counted[what])
    end
    local in_line = call('ZSCORE', key .. 'line', name)
    if (in_line and tonumber(in_line) or -1) ~= (room(queue, group) > 0 and group.turn or -1) then
      wrong[#wrong + 1] = format('queue %s: group %s is not in line as its counts require', queue.name, name)
    end
    if row and not call('ZSCORE', key .. 'names', name) then
      wrong[#wrong + 1] = format('queue %s: group %s is missing from the list of groups', queue.name, name)
    end
  end
  compare('number of listed groups', call('ZCARD', key .. 'names'), call('HLEN', key .. 'groups'))
  for seq in pairs(values) do
    if places[seq] ~= 1 then
      wrong[#wrong + 1] = format('job %s is in %d places instead of 1', seq, places[seq] or 0)
    end
  end
  for seq in pairs(places) do
    if not values[seq] then
      wrong[#wrong + 1] = format('job %s is waiting, RUNNING or finished, but has no record', seq)
    end
  end
  local kept = pairs_of(call('HGETALL', key .. 'block'))
  for block, count in pairs(blocks) do
    compare('block ' .. block, tonumber(kept[block] or 0), count)
    kept[block] = nil
  end
  for block, count in pairs(kept) do
    compare('block ' .. block, tonumber(count), 0)
  end
  for block, one in pairs(ends_of_blocks) do
    local completed, others = contents.ends_of(queue, block)
    if call('HEXISTS', key .. 'contents:' .. block, contents.WHOLE) == 1 then
      compare('COMPLETED jobs of block ' .. block, completed, one.completed)
      compare('other ended jobs of block ' .. block, others, one.others)
    end
  end
  for _, what in ipairs({ 'past', 'private', 'parents', 'marks', 'outside', 'stop' }) do
    for _, seq in ipairs(call('HKEYS', key .. what)) do
      if not values[seq] then
        wrong[#wrong + 1] = format('%s has an entry for job %s, which has no record', what, seq)
      end
    end
  end
  for _, seq in ipairs(call('SMEMBERS', key .. 'extras')) do
    if not values[seq] then
      wrong[#wrong + 1] = format('extras has an entry for job %s, which has no record', seq)
    end
    for _, kind in ipairs({ 'history', 'signals' }) do
      local entries, listed = call('HLEN', key .. kind .. ':' .. seq), call('ZCARD', key .. kind .. '_order:' .. seq)
      compare(format('number of listed entries in the %s of job %s', kind, seq), listed, entries)
    end
  end
  local held = pairs_of(call('HGETALL', key .. 'unique'))
  for unique, holder in pairs(held) do
    local id = sub(holder, 10)
    local seq = seq_of(queue, id)
    if byte(holder, 9) == 1 and (not seq or call('HEXISTS', key .. 'done', seq) == 1) then
      wrong[#wrong + 1] = format('unique key %s of queue %s is held by job %s, which is not active', unique, queue.name, id)
    end
  end
  for seq, value in pairs(values) do
    if has_flag(job_header(value), HAS_ACTIVE_KEY) and call('HEXISTS', key .. 'marks', seq) == 0 then
      wrong[#wrong + 1] = format('job %s has lost its tags and unique key', seq)
    end
    if has_flag(job_header(value), IS_CHILD) and call('HEXISTS', key .. 'parents', seq) == 0 then
      wrong[#wrong + 1] = format('job %s has lost its parent', seq)
    end
  end
  local ended = call('HLEN', key .. 'ended')
  compare('number of listed ends', call('ZCARD', key .. 'ended_order'), ended)
  if (call('SISMEMBER', PREFIX .. ':ended', queue.name) == 1) ~= (ended > 0) then
    wrong[#wrong + 1] = format('queue %s is not listed among those with ends as its ends require', queue.name)
  end
  local turns = call('ZSCORE', PREFIX .. ':turns', queue.name)
  if (turns and tonumber(turns) or -1) ~= (queue.waiting > 0 and queue.turn or -1) then
    wrong[#wrong + 1] = format('queue %s is not in line as its counts require', queue.name)
  end
  local first = call('ZRANGE', key .. 'delayed', 0, 0, 'WITHSCORES')[2]
  local first_of_all = call('ZRANGE', PREFIX .. ':due', 0, 0, 'WITHSCORES')[2]
  if
    (first or '') ~= (call('ZSCORE', PREFIX .. ':due', queue.name) or '')
    or (first_of_all and tonumber(first_of_all) or FOREVER) ~= due
  then
    wrong[#wrong + 1] = format('queue %s: the next due time differs from the stored one', queue.name)
  end
  return wrong
end)
