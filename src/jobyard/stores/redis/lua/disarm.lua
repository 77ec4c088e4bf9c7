-- No more ticks of the schedule are decided, and those that were are forgotten.
-- asks: schedule
-- answers 1 when it was armed
command('disarm', { 'allow-oom' }, function(_, args)
  begin(args)
  call('ZREM', ROOT .. ':armed', ask.schedule)
  call('UNLINK', ROOT .. ':ticks:' .. ask.schedule)
  return call('HDEL', ROOT .. ':schedules', ask.schedule)
end)
