-- Armed schedules by name.
-- request: limit, after (optional)
-- returns flat: name, row (see decide)
command('armed', { 'no-writes' }, function(_, args)
  begin(args)
  local from = request.after and '(' .. request.after or '-'
  local names, found = call('ZRANGEBYLEX', PREFIX .. ':armed', from, '+', 'LIMIT', 0, request.limit), {}
  for index, row in ipairs(hmget(PREFIX .. ':schedules', names)) do
    if row then
      found[#found + 1] = names[index]
      found[#found + 1] = row
    end
  end
  return found
end)
