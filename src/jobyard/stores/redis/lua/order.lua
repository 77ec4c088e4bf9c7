-- An exchange that settles nothing: what is there is claimed; if nothing is, the order stands until it is withdrawn.
-- asks: as an order (see _orders), patience (ms)
-- answers as `exchange` does
command('order', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local before = recall()
  if before then
    return before
  end
  promote()
  local of, seqs, records, more = claim(ask.worker, ask.token, ask.queues, ask.wanted, ask.lease)
  mark_arrivals(#seqs)
  local own_revision = flush()
  if #seqs > 0 then
    keep_answer(ask, {}, of, seqs)
  else
    ask.expires = now + ask.patience
    call('HSET', ROOT .. ':order', ask.token, cmsgpack.pack(ask))
    stand(ask)
  end
  return { {}, of, seqs, records, more, asked_to_stop(ask.worker), next_due(), own_revision, now }
end)
