-- One page of the groups of a queue, by name; the empty name stands for jobs without a group.
-- request: name (queue), limit, after (optional)
-- returns { max_per_group of the queue, rows: { name, row } }, or {} when the queue does not exist
command('groups', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  flush()
  local queue = known_queue(request.name)
  if not queue then
    return {}
  end
  local from = request.after and '(' .. request.after or '-'
  local names = call('ZRANGEBYLEX', queue.key .. 'names', from, '+', 'LIMIT', 0, request.limit)
  local rows, packed = {}, hmget(queue.key .. 'groups', names)
  for index, name in ipairs(names) do
    rows[index] = { name, packed[index] }
  end
  return { queue.max_per_group, rows }
end)
