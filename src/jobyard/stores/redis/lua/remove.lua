-- Take a document away.
-- asks: collection, key, expect or nothing
-- answers 1 when it did
command('remove', { 'allow-oom' }, function(_, args)
  begin(args)
  local hash = ROOT .. ':record:' .. ask.collection
  local present = call('HGET', hash, ask.key)
  if not present then
    return 0
  end
  local version, expires = unpack_bytes('>dd', present)
  if expires <= now or ask.expect and ask.expect ~= version then
    return 0
  end
  call('HDEL', hash, ask.key)
  call('ZREM', ROOT .. ':keys:' .. ask.collection, ask.key)
  call('ZREM', ROOT .. ':expiry', cmsgpack.pack(ask.collection, ask.key))
  return 1
end)
