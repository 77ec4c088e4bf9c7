-- Documents of a collection by key; an expired one does not exist.
-- request: collection, and either key, or limit and after (optional)
-- returns flat: key, record (see put_record)
command('fetch_records', { 'no-writes' }, function(_, args)
  begin(args)
  local hash, found = PREFIX .. ':record:' .. request.collection, {}

  local function add(key, record)
    if record and select(2, unpack_bytes('>dd', record)) > now then
      found[#found + 1] = key
      found[#found + 1] = record
    end
  end

  if request.key then
    add(request.key, call('HGET', hash, request.key))
    return found
  end
  local from = request.after and '(' .. request.after or '-'
  while #found < 2 * request.limit do
    local most = request.limit - #found / 2
    local keys = call('ZRANGEBYLEX', PREFIX .. ':keys:' .. request.collection, from, '+', 'LIMIT', 0, most)
    local records = hmget(hash, keys)
    for index, key in ipairs(keys) do
      add(key, records[index])
    end
    if #keys < most then
      break
    end
    from = '(' .. keys[#keys]
  end
  return found
end)
