-- Write entries for jobs that are not COMPLETED, and make due those that are parked with a condition that now holds.
-- request: deliveries (flat: id, scope, key, data), ended (ids of jobs whose ends are then forgotten)
command('deliver', {}, function(_, args)
  begin_line(args)
  promote()
  local ids, entries = {}, {}
  for index = 1, #request.deliveries, 4 do
    local id = request.deliveries[index]
    local mine = entries[id]
    if not mine then
      mine = {}
      entries[id], ids[#ids + 1] = mine, id
    end
    for offset = 1, 3 do
      mine[#mine + 1] = request.deliveries[index + offset]
    end
  end
  local names = queues_holding(ids)
  for index, id in ipairs(ids) do
    local queue = names[index] and known_queue(names[index])
    local seq = queue and seq_of(queue, id)
    local done = seq and call('HGET', queue.key .. 'done', seq)
    if seq and not (done and byte(done, 1) == COMPLETED) then
      write_entries(queue, seq, entries[id])
      if not done then
        wake(queue, seq, changes_of(queue, seq))
      end
    end
  end
  if request.ended[1] then
    forget_ends(request.ended)
  end
  flush()
  return revision
end)
