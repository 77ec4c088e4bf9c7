-- Arm a schedule: `decide` accepts ticks of this revision that are later than `since` and than the last decided one.
-- request: schedule, revision, since (optional)
-- returns 1, or 0 when a later revision is armed
command('arm', {}, function(_, args)
  begin(args)
  local till = request.since or now
  local row = call('HGET', PREFIX .. ':schedules', request.schedule)
  if row then
    local revision, present = unpack_bytes('>dd', row)
    if revision > request.revision then
      return 0
    end
    till = math.max(present, request.since or present)
  end
  call('HSET', PREFIX .. ':schedules', request.schedule, pad(pack('>dd', request.revision, till)))
  call('ZADD', PREFIX .. ':armed', 0, request.schedule)
  return 1
end)
