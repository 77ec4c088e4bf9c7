-- Settle finished jobs, then claim under the admission rule. Allowed when memory is full, because it frees some.
-- request: worker, token, lease (ms), wanted, queues, settled (see _settle), expired_only, as_of (see expired_leases),
--   slot (see _replay)
-- returns { refused positions, queues, sequences, records, options (see _claim), cancel requests (id, sequence, token,
--   reason), next due or -1, revision, now, queues that it set aside (name, reason), children (see _claim) }
command('exchange', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local before = replay()
  if before then
    return before
  end
  promote()
  local refused = settle(request.settled, request.expired_only)
  local queue_names, seqs, records, options, children =
    claim(request.worker, request.token, request.queues, request.wanted, request.lease)
  delete_leases()
  mark_arrivals(#seqs)
  local own_revision = flush()
  if request.slot and (#seqs > 0 or #request.settled > 0) then
    save_response(request, refused, queue_names, seqs)
  end
  local cancels = cancel_requests(request.worker)
  return {
    refused, queue_names, seqs, records, options, cancels, next_due(), own_revision, now, set_aside_now(), children,
  }
end)
