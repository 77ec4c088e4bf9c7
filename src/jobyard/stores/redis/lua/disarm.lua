-- No more ticks of the schedule are decided, and those that were are forgotten.
-- asks: schedule, revision or nothing: the latest that may be ended
-- answers 1 when it was armed, and no later
command('disarm', { 'allow-oom' }, function(_, args)
  begin(args)
  local row = call('HGET', ROOT .. ':schedules', ask.schedule)
  if not row or ask.revision and unpack_bytes('>d', row) > ask.revision then
    return 0
  end
  call('ZREM', ROOT .. ':armed', ask.schedule)
  call('UNLINK', ROOT .. ':ticks:' .. ask.schedule)
  return call('HDEL', ROOT .. ':schedules', ask.schedule)
end)
