-- Append to a log. entry: at (8) data
-- request: log, data
-- returns the number of the entry; trimmed entries count
command('append_log', {}, function(_, args)
  begin(args)
  local trimmed = tonumber(call('HGET', PREFIX .. ':trimmed', request.log) or 0)
  return trimmed + call('RPUSH', PREFIX .. ':log:' .. request.log, pack('>d', now) .. request.data)
end)
