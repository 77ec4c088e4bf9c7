-- The job if it has ended; otherwise registers the handle as waiting for its end.
-- request: id, handle, keep (ms that the registration is kept; 0 only checks)
-- returns { 1 when ended, parts }, or {} when the job does not exist
command('wait_for_end', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local name = queue_holding(request.id)
  if not name then
    return {}
  end
  local queue = known_queue(name)
  local seq = seq_of(queue, request.id)
  if call('HEXISTS', queue.key .. 'jobs', seq) == 0 then
    return {}
  elseif call('HEXISTS', queue.key .. 'done', seq) == 1 then
    return { 1, job_parts(queue, seq, true) }
  end
  if request.keep > 0 then
    local handles = call('HGET', queue.key .. 'awaited', request.id) or ''
    if not string.find(handles, request.handle, 1, true) then
      call('HSET', queue.key .. 'awaited', request.id, handles .. request.handle .. ' ')
    end
    -- `prune` removes registrations of jobs that have not ended when all waiters have timed out.
    call('ZADD', queue.key .. 'awaited_until', 'GT', after(request.keep), request.id)
  end
  return { 0 }
end)
