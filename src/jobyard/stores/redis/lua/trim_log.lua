-- Remove the entries of a log up to a number.
-- request: log, through
-- returns how many were removed
command('trim_log', { 'allow-oom' }, function(_, args)
  begin(args)
  local key, trimmed = PREFIX .. ':log:' .. request.log, tonumber(call('HGET', PREFIX .. ':trimmed', request.log) or 0)
  local count = math.min(request.through - trimmed, call('LLEN', key))
  if count <= 0 then
    return 0
  end
  call('LTRIM', key, count, -1)
  call('HINCRBY', PREFIX .. ':trimmed', request.log, count)
  return count
end)
