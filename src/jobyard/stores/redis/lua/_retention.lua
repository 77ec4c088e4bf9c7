-- Retention: remove the oldest finished jobs of a queue.
local prune_queue -- the only name that other files use: Lua allows 200 of them

do
  -- Whether even the oldest finished job is younger than this age, as usual.
  local function all_young(queue, key, keep_ms)
    local member = call('ZRANGE', key, 0, 0)[1]
    local record = member and call('HGET', queue.key .. 'done', sub(member, 1, 15))
    return record and select(3, unpack_bytes('>BBd', record)) > now - keep_ms
  end

  -- Keep the first `count` of the lists that no waiter may still ask for; returns how many these are.
  local function leave_out_kept(queue, count, members, seqs, ids)
    local left = 0
    for index = 1, count do
      local member, seq, id = members[index], seqs[index], ids[index]
      local until_time = call('ZSCORE', queue.key .. 'kept', seq)
      if not until_time or tonumber(until_time) <= now then
        left = left + 1
        members[left], seqs[left], ids[left] = member, seq, id
      end
    end
    return left
  end

  local function shorten(list, count)
    for index = #list, count + 1, -1 do
      list[index] = nil
    end
  end

  -- Remove the oldest finished jobs beyond retention, once there are more than `slack` of them: those that are old, and
  -- those that are more than the cap.
  local function prune_bucket(queue, state, beyond, keep_ms, limit, slack)
    local most, key = math.min(beyond, limit), bucket(queue, state)
    if beyond <= slack or most <= 0 then
      return 0
    end
    local excess = queue.completed + queue.failed + queue.cancelled - queue.keep_at_most
    if excess <= slack then
      excess = 0
      if keep_ms > 0 and all_young(queue, key, keep_ms) then
        return 0
      end
    end
    local members, seqs, ids = call('ZRANGE', key, 0, most - 1), {}, {}
    for index, member in ipairs(members) do
      seqs[index], ids[index] = sub(member, 1, 15), sub(member, 16)
    end
    local count = #members
    local has_kept = has(queue, 'kept')
    if has_kept then
      count = leave_out_kept(queue, count, members, seqs, ids)
    end
    if state == COMPLETED and keep_ms == 0 then
      for index = 1, count do
        tally(queue, COMPLETED, -1, seqs[index])
      end
    else
      local ends = hmget(queue.key .. 'done', seqs)
      for index = 1, count do
        if not ends[index] then
          set_aside(queue.name, 'job ' .. seqs[index] .. ' ended, but its end has no record')
          count = index - 1
          break
        end
        local its_state, _, finished = unpack_bytes('>BBd', ends[index])
        -- Ordered by when they ended: all after the first one to keep are to be kept as well.
        -- So are those after a workflow that cannot be removed yet.
        if its_state ~= COMPLETED and is_undelivered(queue, ids[index]) then
          count = index - 1
          break
        end
        if finished > now - keep_ms then
          if index > excess then
            count = index - 1
            break
          end
          queue.removed_by_cap, queue.removed_by_cap_at = queue.removed_by_cap + 1, now
        end
        tally(queue, its_state, -1, seqs[index])
      end
    end
    for _, list in ipairs({ members, seqs, ids }) do
      shorten(list, count)
    end
    if count > 0 then
      if has_kept then
        call_batched('ZREM', key, members)
      else
        call('ZREMRANGEBYRANK', key, 0, count - 1)
      end
      call_batched('HDEL', queue.key .. 'done', seqs)
      drop(queue, seqs, ids)
    end
    return count
  end

  function prune_queue(queue, limit, slack)
    local beyond = queue.completed - queue.keep_completed
    local removed = prune_bucket(queue, COMPLETED, beyond, queue.keep_completed_ms, limit, slack)
    beyond = queue.failed + queue.cancelled - queue.keep_failed
    return removed + prune_bucket(queue, FAILED, beyond, queue.keep_failed_ms, limit - removed, slack)
  end
end
