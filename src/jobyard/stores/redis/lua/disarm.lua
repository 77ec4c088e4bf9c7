-- Disarm a schedule and delete its ticks.
-- request: schedule, revision (optional: the latest one that may be disarmed)
-- returns 1 when it was armed with such a revision
command('disarm', { 'allow-oom' }, function(_, args)
  begin(args)
  local row = call('HGET', PREFIX .. ':schedules', request.schedule)
  if not row or request.revision and unpack_bytes('>d', row) > request.revision then
    return 0
  end
  call('ZREM', PREFIX .. ':armed', request.schedule)
  call('UNLINK', PREFIX .. ':ticks:' .. request.schedule)
  return call('HDEL', PREFIX .. ':schedules', request.schedule)
end)
