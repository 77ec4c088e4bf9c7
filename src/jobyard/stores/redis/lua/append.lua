-- Add to an append-only log. entry: at (8) data
-- asks: log, data
-- answers the entry's number: its place, counted with those that were trimmed
command('append', {}, function(_, args)
  begin(args)
  local trimmed = tonumber(call('HGET', ROOT .. ':trimmed', ask.log) or 0)
  return trimmed + call('RPUSH', ROOT .. ':log:' .. ask.log, pack('>d', now) .. ask.data)
end)
