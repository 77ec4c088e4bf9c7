-- Wake the job if it is parked on the signal, else remember it for its next park.
-- asks: id, name, data
-- answers 1 woken, 0 remembered, -1 no such job, or the state in which it ended
command('signal', {}, function(_, args)
  begin_line(args)
  promote()
  local name = queue_holding(ask.id)
  if not name then
    flush()
    return -1
  end
  local queue = known_queue(name)
  local seq = seq_of(queue, ask.id)
  local done = call('HGET', queue.key .. 'done', seq)
  local woken = 0
  if done then
    woken = 10 + byte(done, 1)
  else
    local past = past_of(queue, seq)
    if past.w == ask.name then
      local _, _, group = header(call('HGET', queue.key .. 'jobs', seq))
      call('ZREM', queue.key .. 'delayed', seq)
      delay(group_of(queue, group), -1)
      past.s = ask.data
      wait(queue, seq, now, nil, past)
      woken = 1
    else
      call('HSET', queue.key .. 'extra:' .. seq, 'signal:' .. ask.name, ask.data)
      add_extra(queue, seq)
    end
  end
  flush()
  return woken
end)
