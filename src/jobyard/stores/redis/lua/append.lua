-- Add to an append-only log. entry: at (8) data
-- asks: log, data
-- answers the entry's number
command('append', {}, function(_, args)
  begin(args)
  return call('RPUSH', ROOT .. ':log:' .. ask.log, pack('>d', now) .. ask.data)
end)
