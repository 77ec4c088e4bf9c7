-- Renew leases from the server's now.
-- asks: worker, lease (ms), unseen (other leases too, if they began within so many ms; false: none), keys (flat: queue or false, sequence, id, token)
-- answers: { positions of the lost, stop (see _stopping) }
-- A handed-off job has no end and is in no such list: XX leaves it as it is.
local function renew(key, seqs)
  local list, expires = { 'XX' }, after(ask.lease)
  for _, seq in ipairs(seqs) do
    list[#list + 1] = expires
    list[#list + 1] = seq
    if #list > AT_ONCE then
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
  if ask.unseen then
    for _, name in ipairs(all_queues()) do
      local key = ROOT .. ':{' .. name .. '}:'
      local seqs, young = call('ZRANGE', key .. 'lease:' .. ask.worker, 0, -1), {}
      local records = fetch(key .. 'leases', seqs)
      for position, seq in ipairs(seqs) do
        if records[position] and open_lease(records[position]).started > now - ask.unseen then
          young[#young + 1] = seq
        end
      end
      renew(key .. 'lease:' .. ask.worker, young)
    end
  end
  local lost, by_queue, by_list = {}, {}, {}
  for index = 1, #ask.keys, 4 do
    local name = ask.keys[index] or queue_holding(ask.keys[index + 2])
    if name then
      by_queue[name] = by_queue[name] or {}
      table.insert(by_queue[name], index)
    else
      lost[#lost + 1] = (index + 3) / 4
    end
  end
  for name, places in pairs(by_queue) do
    local key, seqs = ROOT .. ':{' .. name .. '}:', {}
    for position, index in ipairs(places) do
      seqs[position] = ask.keys[index + 1]
    end
    local records = fetch(key .. 'leases', seqs)
    for position, index in ipairs(places) do
      local record = records[position]
      if record and sub(record, 1, 16) == ask.keys[index + 3] then
        local list = key .. 'lease:' .. open_lease(record).worker
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
  return { lost, asked_to_stop(ask.worker) }
end)
