-- Record the heartbeat of a worker, or remove the worker. beat: until (8) seen (8) data
-- request: id, data, ttl (ms; 0 removes the worker)
command('heartbeat', { 'allow-oom' }, function(_, args)
  begin(args)
  if request.ttl <= 0 then
    return call('HDEL', PREFIX .. ':workers', request.id)
  end
  return call('HSET', PREFIX .. ':workers', request.id, pack('>dd', after(request.ttl), now) .. request.data)
end)
