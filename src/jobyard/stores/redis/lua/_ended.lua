-- Ends of jobs that others must be told about, until `forget_ended` removes them.
-- ended: id -> number of the end (8) state (1) has a reason (1) is a workflow (1) parent, result, reason (4 + n each)
-- ended_order: number of the end -> id
local DELETED = 255

-- Record ends: { seq, id, flags, state, number, result, reason }. Of several ends of a job the first is kept.
local function record_ends(queue, ends)
  local ids, seqs, rows, order = {}, {}, {}, {}
  for index, one in ipairs(ends) do
    seqs[index], ids[index] = one.seq, one.id
  end
  local parents = hmget(queue.key .. 'parents', seqs)
  local recorded = has(queue, 'ended') and hmget(queue.key .. 'ended', ids) or {}
  for index, one in ipairs(ends) do
    if has_flag(one.flags, IS_CHILD) and not parents[index] then
      set_aside(queue.name, 'job ' .. one.seq .. ' has lost its parent')
    end
    if not recorded[index] then
      local is_workflow = has_flag(one.flags, IS_WORKFLOW)
      local head = pack('>dBBB', one.number, one.state, one.reason and 1 or 0, is_workflow and 1 or 0)
      local at = #rows
      rows[at + 1], rows[at + 2] = one.id, head .. join({ parents[index] or '', one.result or '', one.reason or '' })
      order[at + 1], order[at + 2] = one.number, one.id
    end
  end
  if rows[1] then
    call_batched('HSET', queue.key .. 'ended', rows)
    call_batched('ZADD', queue.key .. 'ended_order', order)
    call('SADD', PREFIX .. ':ended', queue.name)
    queue.has.ended = true
  end
end

-- Whether the job is a workflow whose child jobs have yet to be told of its end.
local function is_undelivered(queue, id)
  local row = has(queue, 'ended') and call('HGET', queue.key .. 'ended', id)
  return row and byte(row, 11) == 1
end

-- Remove ends that have been delivered.
local function forget_ends(ids)
  for _, name in ipairs(call('SMEMBERS', PREFIX .. ':ended')) do
    local key = PREFIX .. ':{' .. name .. '}:'
    call_batched('HDEL', key .. 'ended', ids)
    call_batched('ZREM', key .. 'ended_order', ids)
    if call('EXISTS', key .. 'ended', key .. 'ended_order') == 0 then
      call('SREM', PREFIX .. ':ended', name)
    end
  end
end
