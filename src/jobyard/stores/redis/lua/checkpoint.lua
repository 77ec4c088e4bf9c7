-- Record entries of running workflows; a job that records some is one from then on.
-- request: checkpoints: { queue or false, sequence, id, token, entries (flat: scope, key, data), payload (packed) of a
--   restart or false, signals that it has taken (flat: scope, key) }
-- returns for each checkpoint false when its lease is lost, or for each entry the one that is stored: { number, at,
--   data unless it was written now }

local records -- new job records of this command: a job may have several checkpoints

-- The queue if the lease is held, and the new job record and lease record if they change.
local function check(checkpoint)
  local name, seq, id, token, _, payload = unpack(checkpoint)
  name = name or queue_holding(id)
  local queue = name and known_queue(name)
  local lease = queue and call('HGET', queue.key .. 'leases', seq)
  if not lease or sub(lease, 1, 16) ~= token then
    return false
  end
  local held = unpack_lease(lease)
  local is_new = not has_flag(held.flags, IS_WORKFLOW)
  local record = (payload or is_new) and (records[queue.key .. seq] or record_of(queue, seq))
  if not record then
    return queue
  end
  record = with_flag(payload and with_payload(record, payload) or record, FLAGS, IS_WORKFLOW)
  records[queue.key .. seq] = record
  return queue, record, is_new and with_flag(lease, 31 + #held.worker, IS_WORKFLOW)
end

command('checkpoint', {}, function(_, args)
  begin_line(args)
  local checked, answers = {}, {}
  records = {}
  for index, checkpoint in ipairs(request.checkpoints) do
    checked[index] = { check(checkpoint) }
  end
  for index, checkpoint in ipairs(request.checkpoints) do
    local queue, record, lease = unpack(checked[index])
    answers[index] = false
    if queue then
      local seq, changes = checkpoint[2], changes_of(queue, checkpoint[2])
      if changes.d then
        changes.d = nil
        save_changes(queue, seq, changes)
      end
      if record then
        call('HSET', queue.key .. 'jobs', seq, record)
      end
      if lease then
        call('HSET', queue.key .. 'leases', seq, lease)
      end
      if checkpoint[6] then
        clear_history(queue, seq, checkpoint[7])
      end
      answers[index] = write_entries(queue, seq, checkpoint[5])
    end
  end
  flush()
  return answers
end)
