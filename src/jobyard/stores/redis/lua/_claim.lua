-- Claim: the admission rule of `domain.admission`, applied to the groups in line that have room.

-- The index that gets each of `wanted` slots, round by round, when each index has `rooms[index]` of them.
local function share(rooms, wanted)
  local chosen, count, round, remaining = {}, 0, {}, 0
  for index = 1, #rooms do
    if rooms[index] > 0 then
      remaining = remaining + 1
      round[remaining] = index
    end
  end
  while remaining > 0 and count < wanted do
    local left = 0
    for position = 1, math.min(remaining, wanted - count) do
      local index = round[position]
      count = count + 1
      chosen[count] = index
      rooms[index] = rooms[index] - 1
      if rooms[index] > 0 then
        left = left + 1
        round[left] = index
      end
    end
    remaining = left
  end
  return chosen, count
end

local function by_turn(one, other)
  return one.turn < other.turn
end

-- The first `wanted` groups in line that have a due job and room of their own.
local function line(queue, wanted)
  local known = 0
  for _ in pairs(queue.groups) do
    known = known + 1
  end
  local names = call('ZRANGE', queue.key .. 'line', 0, wanted + known - 1)
  load_groups(queue, names)
  local eligible = {}
  if known == 0 then
    for index, name in ipairs(names) do
      eligible[index] = queue.groups[name]
    end
    return eligible
  end
  -- The changes of this call are not written yet, so the sorted set alone is not enough.
  for _, group in pairs(queue.groups) do
    if room(queue, group) > 0 then
      eligible[#eligible + 1] = group
    end
  end
  table.sort(eligible, by_turn)
  for index = #eligible, wanted + 1, -1 do
    eligible[index] = nil
  end
  return eligible
end

-- The queues that a claim considers, by turn; no names means all queues with work.
local function candidates(names)
  local found, seen = {}, {}
  local function add(name, its_turn)
    local queue = queues[name]
    if queue then
      its_turn = queue.waiting > 0 and queue.turn or nil
    end
    if its_turn and not seen[name] then
      seen[name] = true
      found[#found + 1] = { name = name, turn = tonumber(its_turn) }
    end
  end
  if #names == 1 then
    return { { name = names[1] } }
  elseif #names > 0 then
    local turns = read_batched('ZMSCORE', PREFIX .. ':turns', names)
    for index, name in ipairs(names) do
      add(name, turns[index])
    end
  else
    for _, queue in ipairs(loaded) do
      add(queue.name)
    end
    local all = call('ZRANGE', PREFIX .. ':turns', 0, -1, 'WITHSCORES')
    for index = 1, #all, 2 do
      add(all[index], all[index + 1])
    end
  end
  table.sort(found, by_turn)
  return found
end

-- The group of each job to claim, in the order in which single claims would take them.
local function choose_groups(names, wanted)
  local rows, lines, rooms, totals = {}, {}, {}, {}
  for _, candidate in ipairs(candidates(names)) do
    local queue = known_queue(candidate.name)
    local free = queue and queue.waiting > 0 and queue_room(queue) or 0
    local groups = free > 0 and line(queue, math.min(wanted, free)) or {}
    if #groups > 0 then
      local at, total = #lines + 1, 0
      rows[at], lines[at], rooms[at] = queue, groups, {}
      for index, group in ipairs(groups) do
        rooms[at][index] = room(queue, group)
        total = total + rooms[at][index]
      end
      totals[at] = math.min(free, total)
      -- Each queue gets one turn before any gets a second one, so queues beyond the first `wanted` get none.
      if at == wanted then
        break
      end
    end
  end
  local turns, count = share(totals, wanted)
  if #lines == 1 then
    local chosen, order, groups = share(rooms[1], count), {}, lines[1]
    for index = 1, count do
      order[index] = groups[chosen[index]]
    end
    return order, count
  end
  local counts, chosen, order = {}, {}, {}
  for _, at in ipairs(turns) do
    counts[at] = (counts[at] or 0) + 1
  end
  for at, its_count in pairs(counts) do
    chosen[at] = share(rooms[at], its_count)
    counts[at] = 0
  end
  for index, at in ipairs(turns) do
    counts[at] = counts[at] + 1
    order[index] = lines[at][chosen[at][counts[at]]]
  end
  return order, count
end

-- Pop the first jobs of the groups; the running counts change in the same command. Returns the jobs by position: group,
-- sequence. A group that has fewer than it counts is left out.
local function take(order, count)
  local heads, groups, seqs, taken = {}, {}, {}, 0
  for index = 1, count do
    local group = order[index]
    heads[group] = (heads[group] or 0) + 1
  end
  for group, its_count in pairs(heads) do
    local queue = group.queue
    local popped = call('ZPOPMIN', queue.key .. 'ready:' .. group.name, its_count)
    if #popped < 2 * its_count then
      set_aside(queue.name, format('group "%s" counts more waiting jobs than are in its line', group.name))
      its_count = #popped / 2
    end
    heads[group] = popped
    group.taken = -1
    leave(group, its_count)
    run(group, its_count)
  end
  for index = 1, count do
    local group = order[index]
    group.taken = group.taken + 2
    local seq = heads[group][group.taken]
    if seq then
      taken = taken + 1
      groups[taken], seqs[taken] = group, seq
      group.turn = turn + taken
      group.queue.turn = turn + taken
    end
  end
  turn = turn + taken
  return groups, seqs, taken
end

-- The jobs by queue: { queue, positions, sequences, records }; jobs without a record are left out of all lists.
local function read_jobs(groups, seqs, count)
  local by_queue, touched, lost = {}, {}, false
  for index = 1, count do
    local queue = groups[index].queue
    local mine = by_queue[queue]
    if not mine then
      mine = { queue = queue, positions = {}, seqs = {} }
      by_queue[queue] = mine
      touched[#touched + 1] = mine
    end
    mine.positions[#mine.positions + 1] = index
    mine.seqs[#mine.seqs + 1] = seqs[index]
  end
  for _, mine in ipairs(touched) do
    mine.records = hmget(mine.queue.key .. 'jobs', mine.seqs)
    for position, seq in ipairs(mine.seqs) do
      if not mine.records[position] then
        set_aside(mine.queue.name, 'job ' .. seq .. ' has no record')
        run(groups[mine.positions[position]], -1)
        seqs[mine.positions[position]], lost = false, true
      end
    end
  end
  if not lost then
    return touched, groups, seqs, count
  end
  local left_groups, left_seqs = {}, {}
  for index = 1, count do
    if seqs[index] then
      left_groups[#left_groups + 1], left_seqs[#left_seqs + 1] = groups[index], seqs[index]
    end
  end
  return read_jobs(left_groups, left_seqs, #left_seqs)
end

-- Write the leases of the jobs of one queue.
local function write_leases(mine, groups, records, options, children, head, worker, expires)
  local queue, seqs, values = mine.queue, mine.seqs, mine.records
  local leases, ends, plain_records, its_children, child_seqs = {}, {}, {}, {}, {}
  local all_changes = has(queue, 'past') and hmget(queue.key .. 'past', seqs)
  for position = 1, #seqs do
    local index, seq, value = mine.positions[position], seqs[position], values[position]
    local changes = all_changes and all_changes[position]
    local group, flags = groups[index].name, byte(value, FLAGS)
    records[index] = value
    local record = plain_records[group]
    if not record then
      record = head .. pack('>IBH', 1, 0, #group) .. group
      plain_records[group] = record
    end
    if changes or flags > 0 then
      local attempt = (changes and cmsgpack.unpack(changes).u or 0) + 1
      record = head .. pack('>IBH', attempt, flags + (changes and HAS_CHANGES or 0), #group) .. group
      local private = has_flag(flags, HAS_PRIVATE) and call('HGET', queue.key .. 'private', seq)
      if changes or private then
        options[#options + 1] = { index - 1, changes or '', private or '' }
      end
      if has_flag(flags, IS_CHILD) then
        its_children[#its_children + 1], child_seqs[#child_seqs + 1] = index - 1, seq
      end
    end
    local at = 2 * position
    leases[at - 1], leases[at] = seq, record
    ends[at - 1], ends[at] = expires, seq
  end
  for position, parent in ipairs(hmget(queue.key .. 'parents', child_seqs)) do
    if parent then
      children[#children + 1], children[#children + 2] = its_children[position], parent
    else
      set_aside(queue.name, 'job ' .. child_seqs[position] .. ' has lost its parent')
    end
  end
  leases[2] = pad(leases[2])
  call_batched('HSET', queue.key .. 'leases', leases)
  call_batched('ZADD', queue.key .. 'lease:' .. worker, ends)
  call('SADD', queue.key .. 'holders', worker)
end

-- Returns queues (one name if all jobs are of one queue), sequences, records, options of the leases that have any:
-- { position, changes, private payload }, and a flat list of those that are children: position, parent.
local function claim(worker, token, names, wanted, lease_ms)
  if wanted <= 0 then
    return {}, {}, {}, {}, {}
  end
  local touched, groups, seqs, count = read_jobs(take(choose_groups(names, wanted)))
  local records, queue_names, options, children = {}, {}, {}, {}
  for index = 1, count do
    queue_names[index] = groups[index].queue.name
  end
  local head, expires = token .. pack('>dH', now, #worker) .. worker, format('%.0f', after(lease_ms))
  for _, mine in ipairs(touched) do
    write_leases(mine, groups, records, options, children, head, worker, expires)
  end
  return #touched == 1 and { queue_names[1] } or queue_names, seqs, records, options, children
end

-- Count what this exchange left as arrivals, so that other waiters are woken for it.
local function mark_arrivals(claimed)
  local named = {}
  for _, name in ipairs(request.queues) do
    named[name] = true
  end
  for _, queue in ipairs(loaded) do
    if claimed < request.wanted and (#request.queues == 0 or named[queue.name]) then
      queue.arrived = 0 -- this worker took everything
    elseif queue.waiting > 0 and (queue.freed or claimed > 0) and queue_room(queue) > 0 then
      -- Jobs may be left: one waiter is woken, which wakes the next one in turn.
      queue.arrived = math.max(queue.arrived, 1)
    end
  end
end
