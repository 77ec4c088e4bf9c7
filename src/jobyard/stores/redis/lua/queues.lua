-- All queues with their settings and counts.
-- returns rows: { name, row }
command('queues', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  flush()
  local rows = {}
  for index, name in ipairs(all_queues()) do
    rows[index] = { name, queue_row(known_queue(name)) }
  end
  return rows
end)
