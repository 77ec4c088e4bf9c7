-- Create a queue or change what it allows: its settings, its pause, or one group's limit or pause.
-- asks: name, and any of: settings (as in SETTINGS), paused, group with paused or limit
command('configure', { 'allow-oom' }, function(_, args)
  begin_line(args)
  promote()

  -- After `max_per_group` changed: who has room must be judged anew, for all groups without a limit of their own.
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
    many('ZADD', queue.key .. 'line', enter)
    many('ZREM', queue.key .. 'line', exit)
  end

  local queue = queue_of(ask.name)
  queue.dirty, queue.arrived = true, EVERYBODY
  if ask.settings then
    local before = queue.max_per_group
    flush_groups(queue)
    for index, field in ipairs(SETTINGS) do
      queue[field] = ask.settings[index]
    end
    if before ~= queue.max_per_group then
      queue.groups = {}
      reopen(queue)
    end
  elseif not ask.group then
    queue.paused = ask.paused
  else
    local group = group_of(queue, ask.group)
    group.paused = ask.paused or group.paused
    group.limit = ask.limit or group.limit
  end
  flush()
  return revision
end)
