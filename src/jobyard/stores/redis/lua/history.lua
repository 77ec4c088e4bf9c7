-- Entries of scopes of jobs, by number; ends early when they are large.
-- request: wanted (flat: id, scope), after (number), limit (of each), bytes (of all)
-- returns for each { 1 if there may be more, then key, entry (see _history) of each }
local PAGE = 50

local bytes

local function page_of(queue, seq, scope)
  local found, prefix, last, left = { 1 }, scope_prefix(scope), request.after, request.limit
  local entries, order = history_keys(queue, seq, scope)
  while left > 0 and bytes < request.bytes do
    local from, to = entries_after(prefix, last)
    local asked, fields = math.min(PAGE, left), {}
    local members = call('ZRANGEBYLEX', order, from, to, 'LIMIT', 0, asked)
    for index, member in ipairs(members) do
      last, fields[index] = unpack_bytes('>d', member, #prefix + 1), prefix .. sub(member, #prefix + 9)
    end
    for index, value in ipairs(#fields > 0 and hmget(entries, fields) or {}) do
      if value then
        found[#found + 1], found[#found + 2] = sub(fields[index], #prefix + 1), value
        bytes = bytes + #value
      end
    end
    left = left - #members
    if #members < asked then
      found[1] = 0
      break
    end
  end
  return found
end

command('history', { 'no-writes' }, function(_, args)
  begin_line(args)
  bytes = 0
  local ids, pages = {}, {}
  for index = 1, #request.wanted, 2 do
    ids[#ids + 1] = request.wanted[index]
  end
  local names = queues_holding(ids)
  for index, id in ipairs(ids) do
    local queue = names[index] and known_queue(names[index])
    local seq = queue and seq_of(queue, id)
    pages[index] = seq and page_of(queue, seq, request.wanted[2 * index]) or { 0 }
  end
  return pages
end)
