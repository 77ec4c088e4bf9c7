-- Add a job that already runs elsewhere: counted as running, whatever the limits.
-- request: name (queue), id, group, worker, external, token, flags, options (see _insert); further argument: its record
-- returns its sequence, or -1 when the id exists
command('adopt', {}, function(_, args)
  begin_line(args)
  promote()
  if known_ids({ request.id })[request.id] then
    return -1
  end
  local queue = queue_of(request.name)
  if request.options.key and not holder_of(request.name, request.options.key) then
    hold_key(queue, request.options, request.id)
  end
  local seq = create_job(queue, request.id, args[3], now, request.options)
  write_new()
  local head = request.token .. pack('>dH', now, #request.worker) .. request.worker
  local lease = head .. pack('>IBH', 1, request.flags, #request.group) .. request.group
  call('HSET', queue.key .. 'leases', seq, lease)
  call('HSET', queue.key .. 'outside', seq, request.external)
  run(group_of(queue, request.group), 1)
  flush()
  return sequence
end)
