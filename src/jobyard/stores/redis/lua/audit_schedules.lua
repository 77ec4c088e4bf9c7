-- Check all schedules (see decide).
-- returns each discrepancy as a sentence
command('audit_schedules', { 'no-writes' }, function(_, args)
  begin(args)
  local rows, wrong = call('HGETALL', PREFIX .. ':schedules'), {}
  for index = 1, #rows, 2 do
    local name, _, till = rows[index], unpack_bytes('>dd', rows[index + 1])
    local key = PREFIX .. ':ticks:' .. name
    local beyond = call('ZCOUNT', key, '(' .. format('%.0f', till), '+inf')
    if beyond > 0 then
      wrong[#wrong + 1] = format('schedule %s has %d ticks later than its last decided instant (%.0f)', name, beyond, till)
    end
    if call('ZCARD', key) > 100 then
      wrong[#wrong + 1] = format('schedule %s keeps %d ticks instead of at most 100', name, call('ZCARD', key))
    end
    if not call('ZSCORE', PREFIX .. ':armed', name) then
      wrong[#wrong + 1] = format('schedule %s is missing from the list of armed schedules', name)
    end
  end
  if call('ZCARD', PREFIX .. ':armed') ~= #rows / 2 then
    wrong[#wrong + 1] = format('%d schedules are listed, but %d are armed', call('ZCARD', PREFIX .. ':armed'), #rows / 2)
  end
  return wrong
end)
