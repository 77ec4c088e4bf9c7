-- Enter a job that runs already: no limit is asked, the counts are true.
-- asks: name (queue), id, group, worker, external, token, flags, extra (see _insert); a further argument: its record
-- answers its sequence, or -1 when the id is known
command('adopt', {}, function(_, args)
  begin_line(args)
  promote()
  if known_ids({ ask.id })[ask.id] then
    return -1
  end
  local queue = queue_of(ask.name)
  if ask.extra.key and not holder_of(ask.name, ask.extra.key) then
    hold_key(queue, ask.extra, ask.id)
  end
  local seq = register(queue, ask.id, args[3], now, ask.extra)
  write_new()
  local lease = ask.token .. pack('>dH', now, #ask.worker) .. ask.worker .. pack('>IBH', 1, ask.flags, #ask.group) .. ask.group
  call('HSET', queue.key .. 'leases', seq, lease)
  call('HSET', queue.key .. 'outside', seq, ask.external)
  run(group_of(queue, ask.group), 1)
  flush()
  return sequence
end)
