-- Settle: apply a transition only if its token still holds the lease.
-- leases: token (16) started (8) worker (2 + n) attempt (4) flags (1) group (2 + n)
local PRUNE_SLACK = 64

local function unpack_lease(record)
  local token, started, worker, attempt, flags, group = unpack_bytes('>c16dHc0IBHc0', record)
  return { token = token, started = started, worker = worker, attempt = attempt, flags = flags, group = group }
end

local function back_to_waiting(queue, seq, changes, to)
  local run_at, waiting_for = after(to.delay or 0), nil
  if to.signal then
    changes.s, changes.k = nil, to.wake
    if not to.wake then
      changes.s = take_signal(queue, seq, to.signal)
    end
    if changes.s or to.wake and may_wake(queue, seq, to.wake) then
      run_at = now
    else
      waiting_for = to.signal
      run_at = to.park and after(to.park) or FOREVER
    end
  end
  wait(queue, seq, run_at, waiting_for, changes)
end

-- Remove what only an active job has.
local function forget_activity(changes)
  changes.u, changes.w, changes.k, changes.s, changes.c = nil, nil, nil, nil, nil
end

-- Apply a transition that is not batched; the lease is deleted and the counts are lowered already.
local function apply(queue, seq, id, lease, to, stop)
  local changes = has_flag(lease.flags, HAS_CHANGES) and changes_of(queue, seq) or {}
  local state, reason = to.to, to.reason
  if stop and state == PENDING then
    if not changes.c and has_begun(queue, seq, lease.flags) then
      -- A workflow ends itself: it is due at once, and its next lease has the request.
      changes.c = stop
      to = { uncounted = to.uncounted, died = to.died, error = to.error }
    else
      state, reason = CANCELLED, stop
    end
  end
  local used = to.uncounted and lease.attempt - 1 or lease.attempt
  if to.died then
    changes.d = (changes.d or 0) + 1
  end
  if to.error then
    add_error(queue, seq, to.error)
  end
  if state == PENDING then
    changes.u = used
    back_to_waiting(queue, seq, changes, to)
    return
  end
  forget_activity(changes)
  save_changes(queue, seq, changes)
  finish(queue, seq, id, lease.flags, state, reason, to.result, lease.started, used, lease.worker)
end

-- Complete the batch of a queue. Jobs that retention would remove at once are not written first.
local function complete_batch(queue, ends)
  local count, first = ends.count, 1
  for _, child in ipairs(ends.children) do
    child.number = finish_number + child.number
  end
  if ends.children[1] then
    record_ends(queue, ends.children)
  end
  if queue.keep_completed_ms == 0 and count > queue.keep_completed then
    local seqs, ids = {}, {}
    first = count - queue.keep_completed + 1
    for index = 1, first - 1 do
      seqs[index], ids[index] = ends.seqs[index], ends.ids[index]
    end
    finish_number = finish_number + first - 1
    drop(queue, seqs, ids)
  end
  local done, order, heads, at = {}, {}, {}, 0
  for index = first, count do
    local seq, result, lease = ends.seqs[index], ends.results[index], ends.leases[index]
    local head = heads[lease]
    if not head then
      head = finished_head(COMPLETED, nil, lease.started, lease.attempt, lease.worker)
      heads[lease] = head
    end
    finish_number = finish_number + 1
    contents.count_end(queue, sub(seq, 1, BLOCK), true, 1)
    done[at + 1], done[at + 2] = seq, head .. pack('>I', #result) .. result
    order[at + 1], order[at + 2] = finish_number, seq .. ends.ids[index]
    at = at + 2
  end
  if at > 0 then
    done[2] = pad(done[2])
    call_batched('HSET', queue.key .. 'done', done)
    call_batched('ZADD', queue.key .. 'completed', order)
    queue.completed = queue.completed + at / 2
  end
end

-- The queue of a job, for a client that does not know it.
local function queue_holding(id)
  for _, name in ipairs(all_queues()) do
    if call('HEXISTS', PREFIX .. ':{' .. name .. '}:ids', id) == 1 then
      return name
    end
  end
  return false
end

-- The queue of each id, or false.
local function queues_holding(ids)
  local found = {}
  for _, name in ipairs(all_queues()) do
    local known = hmget(PREFIX .. ':{' .. name .. '}:ids', ids)
    for index = 1, #ids do
      found[index] = found[index] or known[index] and name or false
    end
  end
  return found
end

-- Load the leases named in the list, and their groups. Returns their queues, which hold the leases in `held`.
local function load_leases(list)
  local touched, records = {}, {}
  for index = 1, #list, 5 do
    local name = list[index] or queue_holding(list[index + 2])
    local queue = name and known_queue(name)
    list[index] = queue
    if queue then
      local asked = queue.asked
      if not asked then
        asked = { count = 0 }
        queue.asked = asked
        touched[#touched + 1] = queue
      end
      asked.count = asked.count + 1
      asked[asked.count] = list[index + 1]
    end
  end
  for _, queue in ipairs(touched) do
    local held, names, asked = {}, {}, queue.asked
    local found = hmget(queue.key .. 'leases', asked)
    for index = 1, asked.count do
      local record = found[index]
      if record then
        local lease = records[record]
        if not lease then
          lease = unpack_lease(record)
          records[record] = lease
        end
        held[asked[index]] = lease
        names[lease.group] = true
      end
    end
    local wanted = {}
    for name in pairs(names) do
      wanted[#wanted + 1] = name
    end
    load_groups(queue, wanted)
    queue.held, queue.ended, queue.ended_of = held, 0, {}
    queue.batch = { count = 0, seqs = {}, ids = {}, results = {}, leases = {}, children = {} }
    queue.is_plain = not has(queue, 'awaited')
  end
  return touched
end

-- Settle a job that is not batched. Its lease and marks go first: the published end must not show them.
local function settle_single(queue, seq, id, lease, to)
  local stop = has(queue, 'stop') and call('HGET', queue.key .. 'stop', seq)
  if type(to) ~= 'table' then
    to = { to = COMPLETED, result = to == true and 'null' or to }
  end
  call('HDEL', queue.key .. 'leases', seq)
  call('ZREM', queue.key .. 'lease:' .. lease.worker, seq)
  if stop then
    call('HDEL', queue.key .. 'stop', seq)
  end
  if has(queue, 'outside') then
    call('HDEL', queue.key .. 'outside', seq)
  end
  run(group_of(queue, lease.group), -1)
  apply(queue, seq, id, lease, to, stop and select(3, cmsgpack.unpack(stop)))
end

local function hand_off(queue, seq, lease, external)
  call('HSET', queue.key .. 'outside', seq, external)
  call('ZREM', queue.key .. 'lease:' .. lease.worker, seq)
  queue.has.outside = true
end

-- Write the batch of a queue, and prune it.
local function finish_queue(queue)
  local batch = queue.batch
  for index = 1, batch.count do
    local lease = batch.leases[index]
    lease.batch = (lease.batch or 0) + 1
  end
  for index = 1, batch.count do
    local lease = batch.leases[index]
    if lease.batch then
      run(group_of(queue, lease.group), -lease.batch)
      lease.batch = nil
    end
  end
  for _, what in ipairs({ 'outside', 'stop' }) do
    if has(queue, what) then
      call_batched('HDEL', queue.key .. what, batch.seqs)
    end
  end
  queue.stop_changed = queue.has.stop
  complete_batch(queue, batch)
  if queue.ended > 0 then
    prune_queue(queue, 2 * queue.ended + PRUNE_SLACK, PRUNE_SLACK)
  end
end

-- Delete the leases of the batch after the claim added new ones: Redis would otherwise free and recreate the hash.
local function delete_leases()
  for _, queue in ipairs(loaded) do
    if queue.batch then
      call_batched('HDEL', queue.key .. 'leases', queue.batch.seqs)
      for worker, seqs in pairs(queue.ended_of) do
        call_batched('ZREM', queue.key .. 'lease:' .. worker, seqs)
      end
    end
  end
end

-- The instant by which leases are judged: never a later one than now.
local function judged_at()
  return math.min(now, request.as_of or now)
end

local function is_expired(queue, seq, lease)
  local expires = call('ZSCORE', queue.key .. 'lease:' .. lease.worker, seq)
  return expires and tonumber(expires) <= judged_at()
end

-- `list` is flat: queue or false, sequence, id, token, then a result (true for null) or a table with the transition.
-- Returns the positions of the refused, from 1. With `expired_only` a lease that was renewed meanwhile is refused.
local function settle(list, expired_only)
  local touched, refused = load_leases(list), {}
  for index = 1, #list, 5 do
    local queue, seq, to = list[index], list[index + 1], list[index + 4]
    local lease = queue and queue.held[seq]
    if not lease or lease.token ~= list[index + 3] or expired_only and not is_expired(queue, seq, lease) then
      refused[#refused + 1] = (index + 4) / 5
    elseif type(to) == 'table' and to.to == RUNNING then
      hand_off(queue, seq, lease, to.external)
    else
      queue.held[seq] = nil
      queue.ended = queue.ended + 1
      if type(to) ~= 'table' and (lease.flags == 0 or lease.flags == IS_CHILD) and queue.is_plain then
        -- Nothing to free, erase or publish: this one is batched.
        local batch, ended = queue.batch, queue.ended_of[lease.worker]
        if not ended then
          ended = { count = 0 }
          queue.ended_of[lease.worker] = ended
        end
        ended.count = ended.count + 1
        ended[ended.count] = seq
        local at = batch.count + 1
        batch.count, batch.seqs[at], batch.ids[at] = at, seq, list[index + 2]
        batch.results[at], batch.leases[at] = to == true and 'null' or to, lease
        if lease.flags == IS_CHILD then
          local child = { seq = seq, id = list[index + 2], flags = IS_CHILD, state = COMPLETED, number = at }
          child.result = batch.results[at]
          batch.children[#batch.children + 1] = child
        end
      else
        settle_single(queue, seq, list[index + 2], lease, to)
      end
    end
  end
  for _, queue in ipairs(touched) do
    finish_queue(queue)
  end
  return refused
end
