-- All queues with their settings and counts. Due jobs count as waiting, in line or not: reading moves none.
-- returns rows: { name, row }
command('queues', { 'no-writes' }, function(_, args)
  begin_line(args)
  local rows = {}
  for index, name in ipairs(all_queues()) do
    local queue = known_queue(name)
    if due <= now and queue.delayed > 0 then
      local joining = call('ZCOUNT', queue.key .. 'delayed', '-inf', now)
      queue.waiting, queue.delayed = queue.waiting + joining, queue.delayed - joining
    end
    rows[index] = { name, queue_row(queue) }
  end
  return rows
end)
