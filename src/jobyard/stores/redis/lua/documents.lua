-- Documents of a collection by key; an expired one does not exist.
-- asks: collection, and key, or limit with after or nothing
-- answers flat: key, record (see put)
command('documents', { 'no-writes' }, function(_, args)
  begin(args)
  local hash, found = ROOT .. ':record:' .. ask.collection, {}

  local function add(key, record)
    local _, expires = unpack_bytes('>dd', record)
    if expires > now then
      found[#found + 1] = key
      found[#found + 1] = record
    end
  end

  if ask.key then
    local record = call('HGET', hash, ask.key)
    if record then
      add(ask.key, record)
    end
    return found
  end
  local from = ask.after and '(' .. ask.after or '-'
  while #found < 2 * ask.limit do
    local most = ask.limit - #found / 2
    local keys = call('ZRANGEBYLEX', ROOT .. ':keys:' .. ask.collection, from, '+', 'LIMIT', 0, most)
    local records = fetch(hash, keys)
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
