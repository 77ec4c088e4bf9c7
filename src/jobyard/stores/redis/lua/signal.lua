-- Keep a signal as an entry of the job's history. Wake the job if it is parked on the signal, or a workflow if one of its
-- conditions holds.
-- request: id, name, key, data, max (signals that a job keeps of one name)
-- returns 1 when it woke, 0 when it did not, -1 when the job does not exist, -2 when it keeps too many signals, or 10 + its
--   state when it is final
local function send(queue, seq)
  local done = call('HGET', queue.key .. 'done', seq)
  if done then
    return 10 + byte(done, 1)
  end
  local scope, record, changes = SIGNAL .. request.name, record_of(queue, seq), changes_of(queue, seq)
  local taken = taken_signal(queue, seq, request.name)
  local entries = history_keys(queue, seq, scope)
  if not record or call('HEXISTS', entries, scope_prefix(scope) .. request.key) == 1 then
    return 0
  elseif count_entries(queue, seq, scope, taken) >= request.max then
    return -2
  end
  write_entries(queue, seq, { scope, request.key, request.data })
  if has_flag(byte(record, FLAGS), IS_WORKFLOW) then
    return wake(queue, seq, changes) and 1 or 0
  elseif changes.w ~= request.name then
    return 0
  end
  changes.s = take_signal(queue, seq, request.name)
  unpark(queue, seq, changes)
  return 1
end

command('signal', {}, function(_, args)
  begin_line(args)
  promote()
  local name = queue_holding(request.id)
  local queue = name and known_queue(name)
  local seq = queue and seq_of(queue, request.id)
  local answer = seq and send(queue, seq) or -1
  flush()
  return answer
end)
