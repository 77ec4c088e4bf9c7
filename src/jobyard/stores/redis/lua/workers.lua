-- What workers said of themselves last (see beat).
-- answers { now, beats }
command('workers', { 'no-writes' }, function(_, args)
  begin(args)
  return { now, call('HVALS', ROOT .. ':workers') }
end)
