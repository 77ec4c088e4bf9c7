-- Settle what finished, then claim under the admission rule, in one trip. Allowed when memory is full: it frees some.
-- asks: worker, token, lease (ms), wanted, queues, settled (see _settle), expired_only, tokens (see _recover)
-- answers: { refused positions, queues, sequences, records, more (see _claim), stop (id, sequence, token, reason),
--   next due or -1, revision, now, recovered (see _recover) }
command('exchange', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()
  local refused = settle(ask.settled, ask.expired_only)
  local recovered = ask.tokens and recover(ask.worker, ask.tokens, ask.wanted, ask.lease) or {}
  local wanted = ask.wanted - #recovered
  local of, seqs, records, more = claim(ask.worker, ask.token, ask.queues, wanted, ask.lease)

  local named = {}
  for _, name in ipairs(ask.queues) do
    named[name] = true
  end
  for _, queue in ipairs(loaded) do
    if #seqs < wanted and (#ask.queues == 0 or named[queue.name]) then
      queue.arrived = 0 -- this worker took all there was
    elseif queue.waiting > 0 and (queue.freed or #seqs > 0) and queue_room(queue) > 0 then
      -- It may not have taken all: the next one should look, and tell another in turn.
      queue.arrived = math.max(queue.arrived, 1)
    end
  end
  flush()

  local due = call('ZRANGE', ROOT .. ':due', 0, 0, 'WITHSCORES')[2]
  due = due and tonumber(due) or FOREVER
  return {
    refused, of, seqs, records, more, asked_to_stop(ask.worker), due < FOREVER and due or -1, revision, now, recovered,
  }
end)
