-- One job with everything a person may see.
-- asks: id
-- answers its parts (see `see`), or nothing
command('get', { 'no-writes' }, function(_, args)
  begin_line(args)
  local name = queue_holding(ask.id)
  if not name then
    return {}
  end
  local queue = known_queue(name)
  return see(queue, seq_of(queue, ask.id), true)
end)
