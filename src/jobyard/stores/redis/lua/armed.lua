-- Schedules by name.
-- asks: limit, after or nothing
-- answers flat: name, row (see decide)
command('armed', { 'no-writes' }, function(_, args)
  begin(args)
  local from = ask.after and '(' .. ask.after or '-'
  local names, found = call('ZRANGEBYLEX', ROOT .. ':armed', from, '+', 'LIMIT', 0, ask.limit), {}
  for index, row in ipairs(fetch(ROOT .. ':schedules', names)) do
    found[2 * index - 1], found[2 * index] = names[index], row
  end
  return found
end)
