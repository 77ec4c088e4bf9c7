-- Settle what finished, then claim under the admission rule, in one trip. Allowed when memory is full: it frees some.
-- asks: worker, token, lease (ms), wanted, queues, settled (see _settle), expired_only, slot (see _recall)
-- answers: { refused positions, queues, sequences, records, more (see _claim), stop (id, sequence, token, reason),
--   next due or -1, revision, now }
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
  local own_revision = flush()
  if ask.slot and (#seqs > 0 or #ask.settled > 0) then
    keep_answer(ask, refused, of, seqs)
  end
  return { refused, of, seqs, records, more, asked_to_stop(ask.worker), next_due(), own_revision, now }
end)
