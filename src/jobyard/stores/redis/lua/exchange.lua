#!lua flags=allow-oom
-- Settle what finished, then claim under the admission rule, in one trip. Allowed when memory is full: it frees some.
-- asks: worker, token, lease (ms), wanted, queues, settled (see _settle), expired_only
-- answers: { refused positions, queues, sequences, records, more (see _claim), stop (id, sequence, token, reason),
--   next due or -1, revision, now }
-- include _base
-- include _line
-- include _job
-- include _settle
-- include _claim
promote()
local refused = settle(ask.settled, ask.expired_only)
local of, seqs, records, more = claim(ask.worker, ask.token, ask.queues, ask.wanted, ask.lease)

local named = {}
for _, name in ipairs(ask.queues) do
  named[name] = true
end
for _, queue in ipairs(loaded) do
  local is_looked_at = #ask.queues == 0 or named[queue.name]
  if is_looked_at and #seqs < ask.wanted then
    queue.arrived = false -- this worker took all there was
  elseif queue.freed and queue.waiting > 0 then
    queue.arrived = true -- it may not have taken all that came free
  end
end
flush()

-- include _stopping
local due = call('ZRANGE', ROOT .. ':due', 0, 0, 'WITHSCORES')[2]
due = due and tonumber(due) or FOREVER
return { refused, of, seqs, records, more, asked_to_stop(ask.worker), due < FOREVER and due or -1, revision, now }
