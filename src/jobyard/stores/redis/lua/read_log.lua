-- Entries of a log (see append_log).
-- request: log, after, limit
-- returns { number of the entry before the first one, entries }
command('read_log', { 'no-writes' }, function(_, args)
  begin(args)
  local trimmed = tonumber(call('HGET', PREFIX .. ':trimmed', request.log) or 0)
  local first = math.max(0, request.after - trimmed)
  return { trimmed + first, call('LRANGE', PREFIX .. ':log:' .. request.log, first, first + request.limit - 1) }
end)
