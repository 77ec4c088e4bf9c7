-- Remove a document.
-- request: collection, key, expect (optional)
-- returns 1 when it was removed
command('remove_record', { 'allow-oom' }, function(_, args)
  begin(args)
  local hash = PREFIX .. ':record:' .. request.collection
  local present = call('HGET', hash, request.key)
  if not present then
    return 0
  end
  local version, expires = unpack_bytes('>dd', present)
  if expires <= now or request.expect and request.expect ~= version then
    return 0
  end
  call('HDEL', hash, request.key)
  call('ZREM', PREFIX .. ':keys:' .. request.collection, request.key)
  call('ZREM', PREFIX .. ':expiry', cmsgpack.pack(request.collection, request.key))
  return 1
end)
