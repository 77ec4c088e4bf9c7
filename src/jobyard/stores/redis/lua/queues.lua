-- All queues with their settings and counts.
-- answers rows: { name, settings and counts as in FIELDS }
command('queues', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  flush()
  local rows = {}
  for index, name in ipairs(all_queues()) do
    local queue = known_queue(name)
    rows[index] = { name }
    for _, field in ipairs(FIELDS) do
      table.insert(rows[index], queue[field])
    end
  end
  return rows
end)
