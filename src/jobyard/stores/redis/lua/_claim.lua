-- Claim: the rule of `domain.admission`, performed on the open groups in line.

-- Who is given each of `wanted` places, in order, when those in line have so much room each.
local function share(rooms, wanted)
  local given, round = {}, {}
  for index, left in ipairs(rooms) do
    if left > 0 then
      round[#round + 1] = index
    end
  end
  while #round > 0 and #given < wanted do
    local again = {}
    for _, index in ipairs(round) do
      if #given == wanted then
        break
      end
      given[#given + 1] = index
      rooms[index] = rooms[index] - 1
      if rooms[index] > 0 then
        again[#again + 1] = index
      end
    end
    round = again
  end
  return given
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
  -- What this call changed is not written yet.
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

-- The queues that a claim may look at, nearest the front first; none named means all that have work.
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
    local turns = call('ZMSCORE', ROOT .. ':turns', unpack(names))
    for index, name in ipairs(names) do
      add(name, turns[index])
    end
  else
    for _, queue in ipairs(loaded) do
      add(queue.name)
    end
    local all = call('ZRANGE', ROOT .. ':turns', 0, -1, 'WITHSCORES')
    for index = 1, #all, 2 do
      add(all[index], all[index + 1])
    end
  end
  table.sort(found, by_turn)
  return found
end

-- Whose job is taken, once per job, in the order of single claims.
local function places(names, wanted)
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
      -- Each queue with a line gets a turn before any gets a second: those after the first `wanted` get none.
      if at == wanted then
        break
      end
    end
  end
  local turns = share(totals, wanted)
  local counts, given, order = {}, {}, {}
  for _, at in ipairs(turns) do
    counts[at] = (counts[at] or 0) + 1
  end
  for at, count in pairs(counts) do
    given[at] = share(rooms[at], count)
    counts[at] = 0
  end
  for index, at in ipairs(turns) do
    counts[at] = counts[at] + 1
    order[index] = lines[at][given[at][counts[at]]]
  end
  return order
end

-- Take the heads of the groups out of the line; the running counts move in the same step.
local function take(order)
  local heads = {}
  for _, group in ipairs(order) do
    heads[group] = (heads[group] or 0) + 1
  end
  for group, count in pairs(heads) do
    local queue = group.queue
    heads[group] = call('ZPOPMIN', queue.key .. 'ready:' .. group.name, count)
    heads[group].next = 1
    group.waiting, queue.waiting = group.waiting - count, queue.waiting - count
    run(group, count)
  end
  local seqs = {}
  for index, group in ipairs(order) do
    local head = heads[group]
    seqs[index] = head[head.next]
    head.next = head.next + 2
    turn = turn + 1
    group.turn, group.queue.turn = turn, turn
  end
  return seqs
end

-- Answers queues, sequences, records, and what only some leases have: { place, past, private payload }.
local function claim(worker, token, names, wanted, lease_ms)
  local order = wanted > 0 and places(names, wanted) or {}
  local seqs, records, of, more = take(order), {}, {}, {}
  local by_queue, touched = {}, {}
  for index, group in ipairs(order) do
    local queue = group.queue
    of[index] = queue.name
    if not by_queue[queue] then
      by_queue[queue] = {}
      touched[#touched + 1] = queue
    end
    table.insert(by_queue[queue], index)
  end
  local head, expires = token .. pack('>dH', now, #worker) .. worker, after(lease_ms)
  for _, queue in ipairs(touched) do
    local mine, leases, ends = {}, {}, {}
    for position, index in ipairs(by_queue[queue]) do
      mine[position] = seqs[index]
    end
    local values = fetch(queue.key .. 'jobs', mine)
    local pasts = has(queue, 'past') and fetch(queue.key .. 'past', mine) or {}
    local usual = {}
    for position, index in ipairs(by_queue[queue]) do
      local seq, value, past = mine[position], values[position], pasts[position]
      local name, flags = order[index].name, byte(value, 17)
      records[index] = value
      local record = usual[name]
      if not record then
        record = head .. '\0\0\0\1\0' .. name
        usual[name] = record
      end
      if past or flags > 0 then
        local attempt = (past and cmsgpack.unpack(past).u or 0) + 1
        record = head .. pack('>IB', attempt, flags + (past and HAS_PAST or 0)) .. name
        local private = carries(flags, HAS_PRIVATE) and call('HGET', queue.key .. 'private', seq)
        if past or private then
          more[#more + 1] = { index - 1, past or '', private or '' }
        end
      end
      leases[2 * position - 1], leases[2 * position] = seq, record
      ends[2 * position - 1], ends[2 * position] = expires, seq
    end
    many('HSET', queue.key .. 'leases', leases)
    many('ZADD', queue.key .. 'lease:' .. worker, ends)
    call('SADD', queue.key .. 'holders', worker)
  end
  return of, seqs, records, more
end
