-- Remove the entries of a log up to a number.
-- asks: log, through
-- answers how many
command('trim', { 'allow-oom' }, function(_, args)
  begin(args)
  local key, trimmed = ROOT .. ':log:' .. ask.log, tonumber(call('HGET', ROOT .. ':trimmed', ask.log) or 0)
  local count = math.min(ask.through - trimmed, call('LLEN', key))
  if count <= 0 then
    return 0
  end
  call('LTRIM', key, count, -1)
  call('HINCRBY', ROOT .. ':trimmed', ask.log, count)
  return count
end)
