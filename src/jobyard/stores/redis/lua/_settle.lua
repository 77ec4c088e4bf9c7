-- Settle: apply a transition only if its token still holds the lease.
-- leases: token (16) started (8) worker (2 + n) attempt (4) flags (1) group (2 + n)
local PRUNE_SLACK = 64

local function open_lease(record)
  local token, started, worker, attempt, flags, group = unpack_bytes('>c16dHc0IBHc0', record)
  return { token = token, started = started, worker = worker, attempt = attempt, flags = flags, group = group }
end

-- A signal that came before the job parked on it, once.
local function take_signal(queue, seq, name)
  if not has(queue, 'extras') then
    return nil
  end
  local key, field = queue.key .. 'extra:' .. seq, 'signal:' .. name
  local data = call('HGET', key, field)
  if data then
    call('HDEL', key, field)
  end
  return data or nil
end

local function back_to_waiting(queue, seq, past, to)
  local run_at, waiting_for = after(to.delay or 0), nil
  if to.signal then
    past.s = take_signal(queue, seq, to.signal)
    if past.s then
      run_at = now
    else
      waiting_for = to.signal
      run_at = to.park and after(to.park) or FOREVER
    end
  end
  wait(queue, seq, run_at, waiting_for, past)
end

-- Everything but the common end; the lease is gone and the counts are lowered already.
local function apply(queue, seq, id, lease, to, stop)
  local past = carries(lease.flags, HAS_PAST) and past_of(queue, seq) or {}
  local state, reason = to.to, to.reason
  if stop and state == PENDING then
    state, reason = CANCELLED, stop
  end
  local used = to.uncounted and lease.attempt - 1 or lease.attempt
  if to.died then
    past.d = (past.d or 0) + 1
  end
  if to.error then
    add_error(queue, seq, to.error)
  end
  if state == PENDING then
    past.u = used
    back_to_waiting(queue, seq, past, to)
    return
  end
  past.u, past.w, past.s = nil, nil, nil
  keep_past(queue, seq, past)
  finish(queue, seq, id, lease.flags, state, reason, to.result, lease.started, used, lease.worker)
end

-- The common ends of a queue, in one go. Those that retention would drop at once are not written first.
local function complete(queue, ends)
  local count, first = ends.count, 1
  if queue.keep_ms == 0 and count > queue.keep_completed then
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
      head = ending(COMPLETED, nil, lease.started, lease.attempt, lease.worker)
      heads[lease] = head
    end
    finish_number = finish_number + 1
    done[at + 1], done[at + 2] = seq, head .. pack('>I', #result) .. result
    order[at + 1], order[at + 2] = finish_number, seq .. ends.ids[index]
    at = at + 2
  end
  if at > 0 then
    done[2] = pad(done[2])
    many('HSET', queue.key .. 'done', done)
    many('ZADD', queue.key .. 'completed', order)
    queue.completed = queue.completed + at / 2
  end
end

-- The queue that holds a job whose queue the client does not know.
local function queue_holding(id)
  for _, name in ipairs(all_queues()) do
    if call('HEXISTS', ROOT .. ':{' .. name .. '}:ids', id) == 1 then
      return name
    end
  end
  return false
end

-- Loads the leases that the list speaks of, and their groups; answers the queues, in whose rows they are noted.
local function load_held(list)
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
    local found = fetch(queue.key .. 'leases', asked)
    for index = 1, asked.count do
      local record = found[index]
      if record then
        local lease = records[record]
        if not lease then
          lease = open_lease(record)
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
    queue.common = { count = 0, seqs = {}, ids = {}, results = {}, leases = {} }
    queue.is_plain = not has(queue, 'awaited')
  end
  return touched
end

-- An end that is not the common one. What must not be shown with the finished job goes first.
local function settle_apart(queue, seq, id, lease, to)
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

-- What is left to do for a queue once all its ends are known.
local function close(queue)
  local common = queue.common
  for index = 1, common.count do
    local lease = common.leases[index]
    lease.common = (lease.common or 0) + 1
  end
  for index = 1, common.count do
    local lease = common.leases[index]
    if lease.common then
      run(group_of(queue, lease.group), -lease.common)
      lease.common = nil
    end
  end
  for _, what in ipairs({ 'outside', 'stop' }) do
    if has(queue, what) then
      many('HDEL', queue.key .. what, common.seqs)
    end
  end
  queue.stop_changed = queue.has.stop
  complete(queue, common)
  if queue.ended > 0 then
    prune_queue(queue, 2 * queue.ended + PRUNE_SLACK, PRUNE_SLACK)
  end
end

-- The leases of the common ends go last, when others may have come: Redis would build up anew what it finds empty.
local function let_leases_go()
  for _, queue in ipairs(loaded) do
    if queue.common then
      many('HDEL', queue.key .. 'leases', queue.common.seqs)
      for worker, seqs in pairs(queue.ended_of) do
        many('ZREM', queue.key .. 'lease:' .. worker, seqs)
      end
    end
  end
end

local function is_over(queue, seq, lease)
  local expires = call('ZSCORE', queue.key .. 'lease:' .. lease.worker, seq)
  return expires and tonumber(expires) <= now
end

-- `list` is flat: queue or false, sequence, id, token, then a result (true for null) or a table with the transition.
-- Answers which were refused, counted from 1. With `expired_only` a lease that was renewed meanwhile is refused too.
local function settle(list, expired_only)
  local touched, refused = load_held(list), {}
  for index = 1, #list, 5 do
    local queue, seq, to = list[index], list[index + 1], list[index + 4]
    local lease = queue and queue.held[seq]
    if not lease or lease.token ~= list[index + 3] or expired_only and not is_over(queue, seq, lease) then
      refused[#refused + 1] = (index + 4) / 5
    elseif type(to) == 'table' and to.to == RUNNING then
      hand_off(queue, seq, lease, to.external)
    else
      queue.held[seq] = nil
      queue.ended = queue.ended + 1
      if type(to) ~= 'table' and lease.flags == 0 and queue.is_plain then
        -- With nothing to free, erase or tell it goes with the batch.
        local common, of = queue.common, queue.ended_of[lease.worker]
        if not of then
          of = { count = 0 }
          queue.ended_of[lease.worker] = of
        end
        of.count = of.count + 1
        of[of.count] = seq
        local at = common.count + 1
        common.count, common.seqs[at], common.ids[at] = at, seq, list[index + 2]
        common.results[at], common.leases[at] = to == true and 'null' or to, lease
      else
        settle_apart(queue, seq, list[index + 2], lease, to)
      end
    end
  end
  for _, queue in ipairs(touched) do
    close(queue)
  end
  return refused
end
