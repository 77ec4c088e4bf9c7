-- Entries of a log (see append).
-- asks: log, after, limit
-- answers { how many were trimmed or come before, entries }
command('read', { 'no-writes' }, function(_, args)
  begin(args)
  local trimmed = tonumber(call('HGET', ROOT .. ':trimmed', ask.log) or 0)
  local first = math.max(0, ask.after - trimmed)
  return { trimmed + first, call('LRANGE', ROOT .. ':log:' .. ask.log, first, first + ask.limit - 1) }
end)
