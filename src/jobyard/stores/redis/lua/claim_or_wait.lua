-- Claim; if nothing is claimable, leave a waiting claim until it is served, withdrawn or expired.
-- request: as a waiting claim (see _waiting_claims), ttl (ms)
-- returns as `exchange`
command('claim_or_wait', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local before = replay()
  if before then
    return before
  end
  promote()
  local queue_names, seqs, records, options, children =
    claim(request.worker, request.token, request.queues, request.wanted, request.lease)
  mark_arrivals(#seqs)
  local own_revision = flush()
  if #seqs > 0 then
    save_response(request, {}, queue_names, seqs)
  else
    request.expires = now + request.ttl
    call('HSET', PREFIX .. ':order', request.token, cmsgpack.pack(request))
    add_claim(request)
  end
  local cancels = cancel_requests(request.worker)
  return { {}, queue_names, seqs, records, options, cancels, next_due(), own_revision, now, set_aside_now(), children }
end)
