-- The job if it has ended; else this handle is noted as waiting for its end.
-- asks: id, handle, till (ms from now; 0 only looks)
-- answers { 1 when ended, parts }, or nothing when there is no such job
command('await', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local name = queue_holding(ask.id)
  if not name then
    return {}
  end
  local queue = known_queue(name)
  local seq = seq_of(queue, ask.id)
  if call('HEXISTS', queue.key .. 'done', seq) == 1 then
    return { 1, see(queue, seq, true) }
  end
  if ask.till > 0 then
    local handles = call('HGET', queue.key .. 'awaited', ask.id) or ''
    if not string.find(handles, ask.handle, 1, true) then
      call('HSET', queue.key .. 'awaited', ask.id, handles .. ask.handle .. ' ')
    end
    -- What is never told is forgotten some time after everybody has given up.
    call('ZADD', queue.key .. 'awaited_until', 'GT', after(ask.till), ask.id)
  end
  return { 0 }
end)
