-- One page of the groups of a queue, by name; the empty name stands for jobs without a group.
-- Due jobs count as waiting, in line or not, as far as `max_due` allows to read them: reading moves none.
-- request: name (queue), limit, after (optional), max_due
-- returns { max_per_group of the queue, rows: { name, row } }, or {} when the queue does not exist
command('groups', { 'no-writes' }, function(_, args)
  begin_line(args)
  local queue = known_queue(request.name)
  if not queue then
    return {}
  end
  local joining = {}
  if due <= now and queue.delayed > 0 then
    local seqs = call('ZRANGEBYSCORE', queue.key .. 'delayed', '-inf', now, 'LIMIT', 0, request.max_due)
    for _, record in ipairs(hmget(queue.key .. 'jobs', seqs)) do
      local name = record and select(3, job_header(record)) or ''
      joining[name] = (joining[name] or 0) + 1
    end
  end
  local from = request.after and '(' .. request.after or '-'
  local names = call('ZRANGEBYLEX', queue.key .. 'names', from, '+', 'LIMIT', 0, request.limit)
  local rows, packed = {}, hmget(queue.key .. 'groups', names)
  for index, name in ipairs(names) do
    if packed[index] then
      local group = remember_group(queue, name, packed[index])
      group.waiting, group.delayed = group.waiting + (joining[name] or 0), group.delayed - (joining[name] or 0)
      rows[#rows + 1] = { name, group_row(group) }
    end
  end
  return { queue.max_per_group, rows }
end)
