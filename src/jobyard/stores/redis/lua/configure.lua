-- Create a queue, or change its settings, its pause, or the limit or pause of a group.
-- request: name, and one of: settings (as in SETTINGS), paused, group with paused or limit
command('configure', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()

  -- Recompute which groups are in line after `max_per_group` changed.
  local function reopen(queue)
    local rows = call('HGETALL', queue.key .. 'groups')
    local enter, exit = {}, {}
    for index = 1, #rows, 2 do
      local name = rows[index]
      if not queue.groups[name] then
        local group = remember_group(queue, name, rows[index + 1])
        if group.open then
          enter[#enter + 1] = group.turn
          enter[#enter + 1] = name
        else
          exit[#exit + 1] = name
        end
      end
    end
    call_batched('ZADD', queue.key .. 'line', enter)
    call_batched('ZREM', queue.key .. 'line', exit)
  end

  local queue = queue_of(request.name)
  queue.dirty, queue.arrived = true, ALL_WAITERS
  if request.settings then
    local before = queue.max_per_group
    flush_groups(queue)
    for index, field in ipairs(SETTINGS) do
      queue[field] = request.settings[index]
    end
    if before ~= queue.max_per_group then
      queue.groups = {}
      reopen(queue)
    end
  elseif not request.group then
    queue.paused = queue.paused - queue.paused % SET_ASIDE + request.paused
  else
    local group = group_of(queue, request.group)
    group.paused = request.paused or group.paused
    group.limit = request.limit or group.limit
  end
  flush()
  return revision
end)
