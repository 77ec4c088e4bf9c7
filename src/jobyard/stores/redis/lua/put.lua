-- Write a small document. record: version (8) expires (8) data
-- asks: collection, key, data, expect or nothing, expire (ms) or nothing
-- answers its new version, or -1 when its present one is not the expected
command('put', {}, function(_, args)
  begin(args)
  local hash = ROOT .. ':record:' .. ask.collection
  local present, version = call('HGET', hash, ask.key), 0
  if present then
    local its_version, expires = unpack_bytes('>dd', present)
    version = expires > now and its_version or 0
  end
  if ask.expect and ask.expect ~= version then
    return -1
  end
  local expires, place = ask.expire and after(ask.expire) or FOREVER, cmsgpack.pack(ask.collection, ask.key)
  call('HSET', hash, ask.key, pack('>dd', version + 1, expires) .. ask.data)
  call('ZADD', ROOT .. ':keys:' .. ask.collection, 0, ask.key)
  if ask.expire then
    call('ZADD', ROOT .. ':expiry', expires, place)
  else
    call('ZREM', ROOT .. ':expiry', place)
  end
  return version + 1
end)
