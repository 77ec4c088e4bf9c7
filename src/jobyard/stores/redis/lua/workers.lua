-- The last heartbeat of each worker (see heartbeat).
-- returns { now, beats }
command('workers', { 'no-writes' }, function(_, args)
  begin(args)
  return { now, call('HVALS', PREFIX .. ':workers') }
end)
