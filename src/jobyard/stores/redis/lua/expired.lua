-- Leases that have run out, by their end, then by sequence; it takes away lists of workers that hold nothing.
-- asks: limit
-- answers rows: { queue, sequence, id, lease, past, stop }
command('expired', { 'allow-oom' }, function(_, args)
  begin(args)
  local found = {}
  for _, name in ipairs(call('SMEMBERS', ROOT .. ':queues')) do
    local key = ROOT .. ':{' .. name .. '}:'
    for _, worker in ipairs(call('SMEMBERS', key .. 'holders')) do
      local list = key .. 'lease:' .. worker
      local over = call('ZRANGEBYSCORE', list, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ask.limit)
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
  for index = 1, math.min(#found, ask.limit) do
    local key, seq = found[index][1], found[index][2]
    rows[index] = {
      found[index][4], seq, call('HGET', key .. 'jobs', seq), call('HGET', key .. 'leases', seq),
      call('HGET', key .. 'past', seq) or '', call('HGET', key .. 'stop', seq) or '',
    }
  end
  return rows
end)
