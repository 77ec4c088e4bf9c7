-- Look at all schedules again (see decide).
-- answers each disagreement as a sentence
command('audit_schedules', { 'no-writes' }, function(_, args)
  begin(args)
  local rows, wrong = call('HGETALL', ROOT .. ':schedules'), {}
  for index = 1, #rows, 2 do
    local name, _, till = rows[index], unpack_bytes('>dd', rows[index + 1])
    local key = ROOT .. ':ticks:' .. name
    local beyond = call('ZCOUNT', key, '(' .. format('%.0f', till), '+inf')
    if beyond > 0 then
      wrong[#wrong + 1] = format('schedule %s has decided %d ticks beyond the last that it knows (%.0f)', name, beyond, till)
    end
    if call('ZCARD', key) > 100 then
      wrong[#wrong + 1] = format('schedule %s keeps %d ticks', name, call('ZCARD', key))
    end
    if not call('ZSCORE', ROOT .. ':armed', name) then
      wrong[#wrong + 1] = format('schedule %s is not listed', name)
    end
  end
  if call('ZCARD', ROOT .. ':armed') ~= #rows / 2 then
    wrong[#wrong + 1] = format('%d schedules are listed, %d armed', call('ZCARD', ROOT .. ':armed'), #rows / 2)
  end
  return wrong
end)
