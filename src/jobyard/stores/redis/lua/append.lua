#!lua
-- Add to an append-only log. entry: at (8) data
-- asks: log, data
-- answers the entry's number
-- include _base
return call('RPUSH', ROOT .. ':log:' .. ask.log, pack('>d', now) .. ask.data)
