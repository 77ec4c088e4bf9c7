-- Jobs by descending sequence; examines a bounded number of them.
-- request: before (sequence), rows, examined, searched (maximum of each), and any of: queue, group, states (set),
--   after and before_time (created), stop_at (stop at jobs created before), newest (skip those created then or later),
--   needle (in lower case; it may also match other parts of the record, so the client checks again), and where to search:
--   ids, index (a name), hashes (leases), ended (failed: the sorted sets of ended jobs); otherwise everything, block by
--   block, without those that hold none of `contents`: lists of names, of each of which a block must hold one
-- returns { last sequence examined or -1 when there are no more, rows (see `job_parts`) }
local names, rows, examined, searched, is_too_old
-- Blocks that one command looks up in vain; more would block the server for other clients.
local MAX_SKIPPED = 5000

local function state_of(queue, seq)
  local done = has(queue, 'done') and call('HGET', queue.key .. 'done', seq)
  if done then
    return byte(done, 1)
  end
  return call('HEXISTS', queue.key .. 'leases', seq) == 1 and RUNNING or PENDING
end

-- Whether the record of the job matches; checked last, because reading it is expensive.
local function record_fits(queue, seq)
  local value = call('HGET', queue.key .. 'jobs', seq) or ''
  if value == '' then
    return false
  end
  local created = unpack_bytes('>d', value)
  is_too_old = request.stop_at and created < request.stop_at
  if request.group and select(3, job_header(value)) ~= request.group then
    return false
  end
  if request.kind and not string.find(value, request.kind, 1, true) then
    return false -- the client compares it
  end
  if request.after and created < request.after or request.before_time and created >= request.before_time then
    return false
  end
  if request.needle then
    searched = searched + #value
    return string.find(string.lower(value), request.needle, 1, true) ~= nil
  end
  return true
end

-- Examine candidates, newest first. Returns where the next page starts when this one is full.
local function examine(candidates)
  table.sort(candidates, function(one, other)
    return one[1] > other[1]
  end)
  for _, candidate in ipairs(candidates) do
    local seq, queue = candidate[1], candidate[2]
    if tonumber(seq) < request.before then
      examined = examined + 1
      local fits = not request.states or request.states[tostring(state_of(queue, seq))]
      if fits and (request.group or request.kind or request.needle or request.after or request.before_time) then
        fits = record_fits(queue, seq)
        if is_too_old then
          return -1
        end
      end
      local parts = fits and job_parts(queue, seq, false)
      if parts and parts[RECORD] ~= '' then
        rows[#rows + 1] = parts
      end
      if #rows == request.rows or examined == request.examined or searched >= request.searched then
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

-- Candidates from an index, or nil when only a walk finds them.
local function indexed()
  local found = {}
  for _, name in ipairs(names) do
    local queue = known_queue(name)
    if not queue then
      break
    elseif request.ids then
      for _, id in ipairs(request.ids) do
        add(found, queue, { seq_of(queue, id) })
      end
    elseif request.index then
      local key = queue.key .. 'index:' .. request.index
      add(found, queue, call('ZREVRANGEBYSCORE', key, '(' .. request.before, '-inf', 'LIMIT', 0, request.examined))
    elseif request.hashes or request.ended then
      for _, hash in ipairs(request.hashes or {}) do
        if #found + call('HLEN', queue.key .. hash) > request.max_in_hashes then
          return nil
        end
        add(found, queue, call('HKEYS', queue.key .. hash))
      end
      for _, set in ipairs(request.ended or {}) do
        if #found + call('ZCARD', queue.key .. set) > request.max_in_hashes then
          return nil
        end
        for _, member in ipairs(call('ZRANGE', queue.key .. set, 0, -1)) do
          found[#found + 1] = { sub(member, 1, 15), queue }
        end
      end
    else
      return nil
    end
  end
  return found
end

-- Whether a block may hold a job in one of the states.
local function may_hold_state(queue, block, key)
  local wanted = request.states
  local completed, others = contents.ends_of(queue, block)
  if wanted[tostring(PENDING)] or wanted[tostring(RUNNING)] then
    if tonumber(call('HGET', queue.key .. 'block', block) or 0) > completed + others then
      return true
    end
  end
  if wanted[tostring(COMPLETED)] and completed > 0 then
    return true
  end
  for state in pairs(wanted) do
    if others > 0 and call('HEXISTS', key, 's' .. state) == 1 then
      return true
    end
  end
  return false
end

-- Whether a block may hold a match.
local function may_hold(queue, block)
  local key = queue.key .. 'contents:' .. block
  if not request.contents or call('HEXISTS', key, contents.WHOLE) == 0 then
    return true
  end
  if request.states and not may_hold_state(queue, block, key) then
    return false
  end
  for _, alternatives in ipairs(request.contents) do
    local holds = false
    for _, name in ipairs(alternatives) do
      holds = holds or call('HEXISTS', key, name) == 1
    end
    if not holds then
      return false
    end
  end
  return true
end

-- Whether the job exists and is not too new.
local function is_candidate(queue, seq)
  if not request.newest then
    return call('HEXISTS', queue.key .. 'jobs', seq) == 1
  end
  local value = call('HGET', queue.key .. 'jobs', seq)
  return value and unpack_bytes('>d', value) < request.newest
end

-- Whether all jobs of a block are too new, because its first one is: creation times ascend with the sequences,
-- up to the tolerance that `newest` includes.
local function is_too_new(queue, block)
  for number = 1000 * block, 1000 * block + 999 do
    local value = call('HGET', queue.key .. 'jobs', format_sequence(number))
    if value then
      return unpack_bytes('>d', value) >= request.newest
    end
  end
  return false
end

-- Skip the blocks whose jobs are too new, by bisection.
local function skip_new()
  local start = 0
  for _, name in ipairs(names) do
    local queue = known_queue(name)
    local key = PREFIX .. ':{' .. name .. '}:blocks'
    local low, high = 0, queue and call('ZCARD', key) or 0
    while low < high do
      local middle = math.floor((low + high) / 2)
      if is_too_new(queue, tonumber(call('ZRANGE', key, middle, middle)[1])) then
        high = middle
      else
        low = middle + 1
      end
    end
    local block = call('ZRANGE', key, low, low)[1]
    start = math.max(start, block and 1000 * tonumber(block) or request.before)
  end
  request.before = math.min(request.before, start)
end

-- Walk over everything, by the blocks of sequences that hold a job.
local function walk()
  local block, skipped = math.floor((request.before - 1) / 1000), 0
  while true do
    local top = -1
    for _, name in ipairs(names) do
      local key = PREFIX .. ':{' .. name .. '}:blocks'
      top = math.max(top, tonumber(call('ZREVRANGEBYSCORE', key, block, '-inf', 'LIMIT', 0, 1)[1] or -1))
    end
    if top < 0 then
      return -1
    end
    local candidates, last_number = {}, math.min(1000 * top + 1000, request.before) - 1
    for _, name in ipairs(names) do
      local queue = known_queue(name)
      skipped = skipped + 1
      if queue and call('ZSCORE', queue.key .. 'blocks', format('%012d', top)) and may_hold(queue, format('%012d', top)) then
        for number = 1000 * top, last_number do
          local seq = format_sequence(number)
          if is_candidate(queue, seq) then
            candidates[#candidates + 1] = { seq, queue }
          end
        end
      end
    end
    local last = examine(candidates)
    if last then
      return last
    end
    if skipped >= MAX_SKIPPED then
      return 1000 * top
    end
    block = top - 1
  end
end

command('find', { 'no-writes' }, function(_, args)
  begin_line(args)
  names, rows, examined, searched = request.queue and { request.queue } or all_queues(), {}, 0, 0
  local candidates = indexed()
  if candidates then
    return { examine(candidates) or -1, rows }
  end
  if request.newest then
    skip_new()
  end
  return { walk(), rows }
end)
