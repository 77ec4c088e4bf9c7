-- Renew leases from the server's time.
-- request: worker, lease (ms), keys (flat: queue or false, sequence, id, token), unacknowledged (also renew other leases of
--   the worker that began within this many ms; false: none)
-- returns { positions of the lost, cancel requests (see _cancel_requests) }

-- XX: the lease of a handed-off job has no expiry and must not get one.
local function renew(key, seqs)
  local list, expires = { 'XX' }, after(request.lease)
  for _, seq in ipairs(seqs) do
    list[#list + 1] = expires
    list[#list + 1] = seq
    if #list > MAX_ARGUMENTS then
      call('ZADD', key, unpack(list))
      list = { 'XX' }
    end
  end
  if #list > 1 then
    call('ZADD', key, unpack(list))
  end
end

command('extend', { 'allow-oom' }, function(_, args)
  begin_line(args)
  if request.unacknowledged then
    for _, name in ipairs(all_queues()) do
      local key = PREFIX .. ':{' .. name .. '}:'
      local seqs, young = call('ZRANGE', key .. 'lease:' .. request.worker, 0, -1), {}
      local records = hmget(key .. 'leases', seqs)
      for position, seq in ipairs(seqs) do
        if records[position] and math.abs(unpack_lease(records[position]).started - now) < request.unacknowledged then
          young[#young + 1] = seq
        end
      end
      renew(key .. 'lease:' .. request.worker, young)
    end
  end
  local lost, by_queue, by_list = {}, {}, {}
  for index = 1, #request.keys, 4 do
    local name = request.keys[index] or queue_holding(request.keys[index + 2])
    if name then
      by_queue[name] = by_queue[name] or {}
      table.insert(by_queue[name], index)
    else
      lost[#lost + 1] = (index + 3) / 4
    end
  end
  for name, places in pairs(by_queue) do
    local key, seqs = PREFIX .. ':{' .. name .. '}:', {}
    for position, index in ipairs(places) do
      seqs[position] = request.keys[index + 1]
    end
    local records = hmget(key .. 'leases', seqs)
    for position, index in ipairs(places) do
      local record = records[position]
      if record and sub(record, 1, 16) == request.keys[index + 3] then
        local list = key .. 'lease:' .. unpack_lease(record).worker
        by_list[list] = by_list[list] or {}
        table.insert(by_list[list], seqs[position])
      else
        lost[#lost + 1] = (index + 3) / 4
      end
    end
  end
  for list, seqs in pairs(by_list) do
    renew(list, seqs)
  end
  table.sort(lost)
  return { lost, cancel_requests(request.worker) }
end)
