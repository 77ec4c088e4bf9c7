-- Settle what finished, then claim under the admission rule, in one trip. Allowed when memory is full: it frees some.
-- asks: worker, token, lease (ms), wanted, queues, settled (see _settle), expired_only, slot (see _recall)
-- answers: { refused positions, queues, sequences, records, more (see _claim), stop (id, sequence, token, reason),
--   next due or -1, revision, now }

-- Who should hear of what this exchange has left.
local function mark_arrivals(claimed)
  local named = {}
  for _, name in ipairs(ask.queues) do
    named[name] = true
  end
  for _, queue in ipairs(loaded) do
    if claimed < ask.wanted and (#ask.queues == 0 or named[queue.name]) then
      queue.arrived = 0 -- this worker took all there was
    elseif queue.waiting > 0 and (queue.freed or claimed > 0) and queue_room(queue) > 0 then
      -- It may not have taken all: the next one should look, and tell another in turn.
      queue.arrived = math.max(queue.arrived, 1)
    end
  end
end

command('exchange', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local before = recall()
  if before then
    return before
  end
  promote()
  local refused = settle(ask.settled, ask.expired_only)
  local of, seqs, records, more = claim(ask.worker, ask.token, ask.queues, ask.wanted, ask.lease)
  let_leases_go()
  mark_arrivals(#seqs)
  flush()
  if ask.slot and (#seqs > 0 or #ask.settled > 0) then
    keep_answer(refused, of, seqs)
  end
  local due = call('ZRANGE', ROOT .. ':due', 0, 0, 'WITHSCORES')[2]
  due = due and tonumber(due) or FOREVER
  return { refused, of, seqs, records, more, asked_to_stop(ask.worker), due < FOREVER and due or -1, revision, now }
end)
