-- Wake the job if it is parked on the signal; otherwise keep the signal for its next park.
-- request: id, name, data
-- returns 1 when it woke, 0 when the signal was kept, -1 when the job does not exist, or 10 + its state when it is final
command('signal', {}, function(_, args)
  begin_line(args)
  promote()
  local name = queue_holding(request.id)
  if not name then
    flush()
    return -1
  end
  local queue = known_queue(name)
  local seq = seq_of(queue, request.id)
  local done = call('HGET', queue.key .. 'done', seq)
  local woken = 0
  if done then
    woken = 10 + byte(done, 1)
  else
    local changes = changes_of(queue, seq)
    if changes.w == request.name then
      local record = record_of(queue, seq)
      call('ZREM', queue.key .. 'delayed', seq)
      if record then
        delay(group_of(queue, (select(3, job_header(record)))), -1)
      end
      changes.s = request.data
      wait(queue, seq, now, nil, changes)
      woken = 1
    else
      call('HSET', queue.key .. 'extra:' .. seq, 'signal:' .. request.name, request.data)
      add_extra(queue, seq)
    end
  end
  flush()
  return woken
end)
