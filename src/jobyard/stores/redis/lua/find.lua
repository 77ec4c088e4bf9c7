-- Jobs by descending sequence, looking at a bounded number of them.
-- asks: before, rows, looked, searched (most of each), and any of: queue, group, states (set),
--   after and before_time (created), past (nothing created before that is worth a look),
--   needle (in lower case; what else the record says may match it too, so the client looks again), and where to look:
--   ids, index (a name), shelves (leases, done); else everything, block by block
-- answers { last sequence looked at or -1 when there are no more, rows (see `see`) }
local names, rows, looked, searched, is_past

local function state_of(queue, seq)
  local done = has(queue, 'done') and call('HGET', queue.key .. 'done', seq)
  if done then
    return byte(done, 1)
  end
  return call('HEXISTS', queue.key .. 'leases', seq) == 1 and RUNNING or PENDING
end

-- Whether the job's own record fits; reading it is what costs.
local function record_fits(queue, seq)
  local value = call('HGET', queue.key .. 'jobs', seq) or ''
  if value == '' then
    return false
  end
  local created = unpack_bytes('>d', value)
  is_past = ask.past and created < ask.past
  if ask.group and select(3, header(value)) ~= ask.group then
    return false
  end
  if ask.after and created < ask.after or ask.before_time and created >= ask.before_time then
    return false
  end
  if ask.needle then
    searched = searched + #value
    return string.find(string.lower(value), ask.needle, 1, true) ~= nil
  end
  return true
end

-- Looks at candidates, newest first; answers where to go on when it has enough.
local function look(candidates)
  table.sort(candidates, function(one, other)
    return one[1] > other[1]
  end)
  for _, candidate in ipairs(candidates) do
    local seq, queue = candidate[1], candidate[2]
    if tonumber(seq) < ask.before then
      looked = looked + 1
      local fits = not ask.states or ask.states[tostring(state_of(queue, seq))]
      if fits and (ask.group or ask.needle or ask.after or ask.before_time) then
        fits = record_fits(queue, seq)
        if is_past then
          return -1
        end
      end
      if fits then
        rows[#rows + 1] = see(queue, seq, false)
      end
      if #rows == ask.rows or looked == ask.looked or searched >= ask.searched then
        return tonumber(seq)
      end
    end
  end
  return nil
end

local function add(candidates, queue, seqs)
  for _, seq in ipairs(seqs) do
    if seq then
      candidates[#candidates + 1] = { seq, queue }
    end
  end
end

-- Candidates that an index names, or nil when only a walk finds them.
local function named()
  local found = {}
  for _, name in ipairs(names) do
    local queue = known_queue(name)
    if not queue then
      break
    elseif ask.ids then
      for _, id in ipairs(ask.ids) do
        add(found, queue, { seq_of(queue, id) })
      end
    elseif ask.index then
      local key = queue.key .. 'index:' .. ask.index
      add(found, queue, call('ZREVRANGEBYSCORE', key, '(' .. ask.before, '-inf', 'LIMIT', 0, ask.looked))
    elseif ask.shelves then
      for _, shelf in ipairs(ask.shelves) do
        if #found + call('HLEN', queue.key .. shelf) > ask.shelf_most then
          return nil
        end
        add(found, queue, call('HKEYS', queue.key .. shelf))
      end
    else
      return nil
    end
  end
  return found
end

-- Everything, by blocks of sequences that hold any job at all.
local function walk()
  local block = math.floor((ask.before - 1) / 1000)
  while true do
    local top = -1
    for _, name in ipairs(names) do
      local key = ROOT .. ':{' .. name .. '}:blocks'
      top = math.max(top, tonumber(call('ZREVRANGEBYSCORE', key, block, '-inf', 'LIMIT', 0, 1)[1] or -1))
    end
    if top < 0 then
      return -1
    end
    local candidates, seqs = {}, {}
    for number = 1000 * top, math.min(1000 * top + 1000, ask.before) - 1 do
      seqs[#seqs + 1] = name_of(number)
    end
    for _, name in ipairs(names) do
      local queue = known_queue(name)
      if queue and call('ZSCORE', queue.key .. 'blocks', format('%012d', top)) then
        for _, seq in ipairs(seqs) do
          if call('HEXISTS', queue.key .. 'jobs', seq) == 1 then
            candidates[#candidates + 1] = { seq, queue }
          end
        end
      end
    end
    local last = look(candidates)
    if last then
      return last
    end
    block = top - 1
  end
end

command('find', { 'no-writes' }, function(_, args)
  begin_line(args)
  names, rows, looked, searched = ask.queue and { ask.queue } or all_queues(), {}, 0, 0
  local candidates = named()
  if candidates then
    return { look(candidates) or -1, rows }
  end
  return { walk(), rows }
end)
