-- One job with all its parts.
-- request: id
-- returns its parts (see `job_parts`), or {}
command('get', { 'no-writes' }, function(_, args)
  begin_line(args)
  local name = queue_holding(request.id)
  if not name then
    return {}
  end
  local queue = known_queue(name)
  local parts = job_parts(queue, seq_of(queue, request.id), true)
  return parts[RECORD] ~= '' and parts or {}
end)
