-- Withdraw a waiting claim.
-- request: as a waiting claim (see _waiting_claims)
-- returns what it was granted meanwhile, as `exchange`, or {}
command('withdraw_claim', { 'allow-oom' }, function(_, args)
  begin_line(args)
  remove_claim(request)
  return replay() or {}
end)
