-- The oldest ends that were not forgotten; stops early when they are large.
-- request: after (number of an end), limit, bytes
-- returns { 1 if there may be more, then id, row (see _ended) of each }
command('ended_jobs', { 'allow-oom' }, function(_, args)
  begin_line(args)
  local sources, found, bytes = {}, { 0 }, 0
  for _, name in ipairs(call('SMEMBERS', PREFIX .. ':ended')) do
    local key = PREFIX .. ':{' .. name .. '}:'
    local skipped = call('ZCOUNT', key .. 'ended_order', '-inf', request.after)
    sources[#sources + 1] = { name = name, key = key .. 'ended_order', rows = key .. 'ended', skipped = skipped }
  end
  local ends = merge(sources, request.limit, UNLIMITED)
  for index = 1, #ends, 2 do
    local source, id = ends[index], ends[index + 1]
    local row = call('HGET', source.rows, id)
    if row then
      found[#found + 1], found[#found + 2] = id, row
      bytes = bytes + #row
      if bytes >= request.bytes then
        found[1] = 1
        break
      end
    else
      set_aside(source.name, 'the end of job ' .. id .. ' has no record')
    end
  end
  if #ends == 2 * request.limit then
    found[1] = 1
  end
  flush()
  return found
end)
