-- Take an order back.
-- asks: as an order (see _orders)
-- answers what it was given meanwhile, as `exchange` does, or nothing
command('withdraw', { 'allow-oom' }, function(_, args)
  begin_line(args)
  lie_down(ask)
  return recall() or {}
end)
