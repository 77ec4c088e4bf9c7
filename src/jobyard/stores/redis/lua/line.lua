-- The front of a queue's line: groups with due jobs, by turn.
-- Of a queue with more than `max_groups` groups, only those with room: the sorted set of the line holds no others.
-- Jobs that are due but not in line yet join it as by a claim.
-- request: name (queue), limit, max_groups
-- returns { max_per_group of the queue, rows: { name, row }, number of groups in line }, or {} without that queue
command('line', { 'allow-oom' }, function(_, args)
  begin_line(args)
  if not known_queue(request.name) then
    return {}
  end
  promote()
  flush()
  local queue = known_queue(request.name)
  local names
  if call('HLEN', queue.key .. 'groups') <= request.max_groups then
    names = call('ZRANGEBYLEX', queue.key .. 'names', '-', '+')
  else
    names = call('ZRANGE', queue.key .. 'line', 0, request.limit - 1)
  end
  load_groups(queue, names)
  local waiting = {}
  for _, name in ipairs(names) do
    local group = queue.groups[name]
    if group.waiting > 0 then
      waiting[#waiting + 1] = group
    end
  end
  table.sort(waiting, function(one, other)
    return one.turn < other.turn
  end)
  local rows = {}
  for index = 1, math.min(request.limit, #waiting) do
    rows[index] = { waiting[index].name, group_row(waiting[index]) }
  end
  return { queue.max_per_group, rows, math.max(#waiting, call('ZCARD', queue.key .. 'line')) }
end)
