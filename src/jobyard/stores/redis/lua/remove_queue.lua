-- Remove a queue that has no jobs. Claims that wait for its jobs go on waiting.
-- request: name
-- returns the number of its jobs (0: removed), or -1 if it does not exist
command('remove_queue', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local name, key = request.name, PREFIX .. ':{' .. request.name .. '}:'
  if call('SISMEMBER', PREFIX .. ':queues', name) == 0 then
    return -1
  end
  local jobs = call('HLEN', key .. 'jobs')
  if jobs == 0 then
    for _, what in ipairs({ 'queue', 'groups', 'names', 'line', 'delayed', 'blocks', 'unique', 'unique_until', 'holders', 'kept' }) do
      call('UNLINK', key .. what)
    end
    for _, index in ipairs({ ':turns', ':due' }) do
      call('ZREM', PREFIX .. index, name)
    end
    call('SREM', PREFIX .. ':queues', name)
    call('SREM', PREFIX .. ':stopping', name)
    call('HDEL', PREFIX .. ':damaged', name)
  end
  return jobs
end)
