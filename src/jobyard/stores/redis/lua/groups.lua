-- Groups of a queue by name, a page of them; the jobs without a group have the empty name.
-- asks: name (queue), limit, after or nothing
-- answers { the queue's max_per_group, rows: { name, row } }, or nothing when there is no such queue
command('groups', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  flush()
  local queue = known_queue(ask.name)
  if not queue then
    return {}
  end
  local from = ask.after and '(' .. ask.after or '-'
  local names = call('ZRANGEBYLEX', queue.key .. 'names', from, '+', 'LIMIT', 0, ask.limit)
  local rows, packed = {}, fetch(queue.key .. 'groups', names)
  for index, name in ipairs(names) do
    rows[index] = { name, packed[index] }
  end
  return { queue.max_per_group, rows }
end)
