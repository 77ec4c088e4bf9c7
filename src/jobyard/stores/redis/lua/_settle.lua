-- Settle: apply a transition only if its token still holds the lease.
-- leases: token (16) started (8) worker (2 + n) attempt (4) flags (1) group
local PRUNE_SLACK = 64

local function open_lease(record)
  local token, started, worker, attempt, flags, position = unpack_bytes('>c16dHc0IB', record)
  return {
    token = token, started = started, worker = worker, attempt = attempt, flags = flags, group = sub(record, position),
  }
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
  local first = 1
  if queue.keep_ms == 0 and #ends - queue.keep_completed > 0 then
    local gone = {}
    for index = 1, #ends - queue.keep_completed do
      gone[index] = ends[index][1] .. ends[index][2]
    end
    first = #gone + 1
    finish_number = finish_number + #gone
    drop(queue, gone)
  end
  local done, order, heads = {}, {}, {}
  for index = first, #ends do
    local seq, id, result, lease = unpack(ends[index])
    local head = heads[lease]
    if not head then
      head = ending(COMPLETED, nil, lease.started, lease.attempt, lease.worker)
      heads[lease] = head
    end
    finish_number = finish_number + 1
    done[#done + 1] = seq
    done[#done + 1] = head .. result
    order[#order + 1] = finish_number
    order[#order + 1] = seq .. id
  end
  many('HSET', queue.key .. 'done', done)
  many('ZADD', queue.key .. 'completed', order)
  queue.completed = queue.completed + #ends - first + 1
  queue.dirty = true
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

-- `list` is flat: queue or false, sequence, id, token, then a result (true for null) or a table with the transition.
-- Answers which were refused, counted from 1. With `expired_only` a lease that was renewed meanwhile is refused too.
local function settle(list, expired_only)
  local refused, asked, touched, records = {}, {}, {}, {}
  for index = 1, #list, 5 do
    local name = list[index] or queue_holding(list[index + 2])
    local queue = name and known_queue(name)
    list[index] = queue
    if queue then
      if not asked[queue] then
        asked[queue] = {}
        touched[#touched + 1] = queue
      end
      table.insert(asked[queue], list[index + 1])
    end
  end
  for _, queue in ipairs(touched) do
    local held, names = {}, {}
    local found = fetch(queue.key .. 'leases', asked[queue])
    for index, seq in ipairs(asked[queue]) do
      local record = found[index]
      if record then
        local lease = records[record]
        if not lease then
          lease = open_lease(record)
          records[record] = lease
          names[#names + 1] = lease.group
        end
        held[seq] = lease
      end
    end
    load_groups(queue, names)
    queue.held, queue.ended, queue.ended_of, queue.common = held, {}, {}, {}
    queue.stops = has(queue, 'stop')
    queue.plain = not has(queue, 'awaited')
  end
  for index = 1, #list, 5 do
    local queue, seq, id, token, to = unpack(list, index, index + 4)
    local lease = queue and queue.held[seq]
    local holds = lease and lease.token == token
    if holds and expired_only then
      local expires = call('ZSCORE', queue.key .. 'lease:' .. lease.worker, seq)
      holds = expires and tonumber(expires) <= now
    end
    if not holds then
      refused[#refused + 1] = (index + 4) / 5
    elseif type(to) == 'table' and to.to == RUNNING then
      call('HSET', queue.key .. 'outside', seq, to.external)
      call('ZREM', queue.key .. 'lease:' .. lease.worker, seq)
      queue.has.outside = true
    else
      queue.held[seq] = nil
      queue.ended[#queue.ended + 1] = seq
      local of = queue.ended_of[lease.worker]
      if not of then
        of = {}
        queue.ended_of[lease.worker] = of
      end
      of[#of + 1] = seq
      run(group_of(queue, lease.group), -1)
      if type(to) ~= 'table' and lease.flags == 0 and queue.plain then
        queue.common[#queue.common + 1] = { seq, id, to == true and 'null' or to, lease }
      else
        local stop = queue.stops and call('HGET', queue.key .. 'stop', seq)
        local reason = stop and select(3, cmsgpack.unpack(stop))
        if type(to) ~= 'table' then
          to = { to = COMPLETED, result = to == true and 'null' or to }
        end
        -- Not shown with the job that is sent to those who wait for it.
        call('HDEL', queue.key .. 'leases', seq)
        if stop then call('HDEL', queue.key .. 'stop', seq) end
        if has(queue, 'outside') then call('HDEL', queue.key .. 'outside', seq) end
        apply(queue, seq, id, lease, to, reason)
      end
    end
  end
  for _, queue in ipairs(touched) do
    many('HDEL', queue.key .. 'leases', queue.ended)
    for worker, seqs in pairs(queue.ended_of) do
      many('ZREM', queue.key .. 'lease:' .. worker, seqs)
    end
    for _, what in ipairs({ 'outside', 'stop' }) do
      if has(queue, what) then
        many('HDEL', queue.key .. what, queue.ended)
      end
    end
    queue.stop_changed = queue.stops
    complete(queue, queue.common)
    if #queue.ended > 0 then
      prune_queue(queue, 2 * #queue.ended + PRUNE_SLACK, PRUNE_SLACK)
    end
  end
  return refused
end
