-- Write a document. record: version (8) expires (8) data
-- request: collection, key, data, expect (optional), expire (ms, optional)
-- returns its new version, or -1 when the current one is not the expected one
command('put_record', {}, function(_, args)
  begin(args)
  local hash = PREFIX .. ':record:' .. request.collection
  local present, version = call('HGET', hash, request.key), 0
  if present then
    local its_version, expires = unpack_bytes('>dd', present)
    version = expires > now and its_version or 0
  end
  if request.expect and request.expect ~= version then
    return -1
  end
  local expires, member = request.expire and after(request.expire) or FOREVER, cmsgpack.pack(request.collection, request.key)
  call('HSET', hash, request.key, pack('>dd', version + 1, expires) .. request.data)
  call('ZADD', PREFIX .. ':keys:' .. request.collection, 0, request.key)
  if request.expire then
    call('ZADD', PREFIX .. ':expiry', expires, member)
  else
    call('ZREM', PREFIX .. ':expiry', member)
  end
  return version + 1
end)
