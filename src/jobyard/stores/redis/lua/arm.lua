-- From now on ticks of this revision are decided (see decide), later than a time and than the last decided.
-- asks: schedule, revision, since or nothing
-- answers 1, or 0 when a later revision is armed
command('arm', {}, function(_, args)
  begin(args)
  local till = ask.since or now
  local row = call('HGET', ROOT .. ':schedules', ask.schedule)
  if row then
    local revision, present = unpack_bytes('>dd', row)
    if revision > ask.revision then
      return 0
    end
    till = math.max(present, ask.since or present)
  end
  call('HSET', ROOT .. ':schedules', ask.schedule, pad(pack('>dd', ask.revision, till)))
  call('ZADD', ROOT .. ':armed', 0, ask.schedule)
  return 1
end)
