-- Expired leases, by expiry, then by sequence; also forgets workers that hold none.
-- request: limit
-- returns rows: { queue, sequence, job record, lease record, changes, cancel request }
command('expired_leases', { 'allow-oom' }, function(_, args)
  begin(args)
  local found = {}
  for _, name in ipairs(call('SMEMBERS', PREFIX .. ':queues')) do
    local key = PREFIX .. ':{' .. name .. '}:'
    for _, worker in ipairs(call('SMEMBERS', key .. 'holders')) do
      local list = key .. 'lease:' .. worker
      local over = call('ZRANGEBYSCORE', list, '-inf', now, 'WITHSCORES', 'LIMIT', 0, request.limit)
      for index = 1, #over, 2 do
        found[#found + 1] = { key, over[index], tonumber(over[index + 1]), name }
      end
      if #over == 0 and call('EXISTS', list) == 0 then
        call('SREM', key .. 'holders', worker)
      end
    end
  end
  table.sort(found, function(one, other)
    if one[3] ~= other[3] then
      return one[3] < other[3]
    end
    return one[2] < other[2]
  end)
  local rows = {}
  for index = 1, math.min(#found, request.limit) do
    local key, seq = found[index][1], found[index][2]
    rows[index] = {
      found[index][4], seq, call('HGET', key .. 'jobs', seq), call('HGET', key .. 'leases', seq),
      call('HGET', key .. 'past', seq) or '', call('HGET', key .. 'stop', seq) or '',
    }
  end
  return rows
end)
