-- Cancel requests for running jobs of a worker, by sequence: id, sequence, token, reason of each.
local function cancel_requests(worker)
  local found = {}
  for _, name in ipairs(call('SMEMBERS', PREFIX .. ':stopping')) do
    local key = PREFIX .. ':{' .. name .. '}:'
    local stops = call('HGETALL', key .. 'stop')
    for index = 1, #stops, 2 do
      local of, id, reason = cmsgpack.unpack(stops[index + 1])
      if of == worker then
        local lease = call('HGET', key .. 'leases', stops[index])
        if lease then
          found[#found + 1] = { id, stops[index], sub(lease, 1, 16), reason }
        end
      end
    end
  end
  table.sort(found, function(one, other)
    return one[2] < other[2]
  end)
  return found
end
