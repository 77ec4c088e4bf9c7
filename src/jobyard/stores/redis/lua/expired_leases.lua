-- Expired leases, by expiry, then by sequence; also forgets workers that hold none.
-- request: limit, as_of (optional: judge by this instant, if it is earlier), longest (ms, optional: shorten leases that
--   end later than that from now)
-- returns rows: { queue, sequence, job record, lease record, changes, cancel request, 1 if it is a workflow that has begun }
command('expired_leases', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local sources, left = {}, request.limit

  -- Each list is ordered by its ends, so only those that are too long are read.
  local function shorten(list)
    local longest = format('%.0f', after(request.longest))
    local long = call('ZRANGEBYSCORE', list, '(' .. longest, '+inf', 'LIMIT', 0, left)
    for _, seq in ipairs(long) do
      call('ZADD', list, longest, seq)
    end
    left = left - #long
  end

  for _, name in ipairs(all_queues()) do
    local key = PREFIX .. ':{' .. name .. '}:'
    for _, worker in ipairs(call('SMEMBERS', key .. 'holders')) do
      local list = key .. 'lease:' .. worker
      if call('EXISTS', list) == 1 then
        sources[#sources + 1] = { key = list, name = name, of_queue = key }
        if request.longest then
          shorten(list)
        end
      else
        call('SREM', key .. 'holders', worker)
      end
    end
  end
  local found, rows = merge(sources, request.limit, judged_at()), {}
  for index = 1, #found, 2 do
    local key, name, seq = found[index].of_queue, found[index].name, found[index + 1]
    local record, lease = call('HGET', key .. 'jobs', seq), call('HGET', key .. 'leases', seq)
    if record and lease then
      local begun = has_begun({ key = key }, seq, byte(record, FLAGS))
      rows[#rows + 1] = {
        name, seq, record, lease, call('HGET', key .. 'past', seq) or '', call('HGET', key .. 'stop', seq) or '',
        begun and 1 or 0,
      }
    else
      set_aside(name, 'job ' .. seq .. ' has a lease that expired, but no record')
    end
  end
  flush()
  return rows
end)
