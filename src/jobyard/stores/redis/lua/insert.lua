-- Insert the jobs of several calls, each call all or nothing.
-- request: names (queues), calls: { jobs, options by position } (see _insert)
-- further arguments: the records of all jobs, in order
-- returns per call { first sequence, position and holder's id of those not created }, or a rejection:
--   { 'duplicate', id }, { 'queue', name, limit }, { 'group', name, group, limit }, { 'damaged', queue, reason }
local function check_room(counts)
  for name, count in pairs(counts) do
    local queue = known_queue(name)
    if exceeds_queue(queue, count.all) then
      return { 'queue', name, queue.max_waiting }
    end
    for group, added in pairs(count.groups) do
      if exceeds_group(queue, group, added) then
        return { 'group', name, group, queue.max_waiting_per_group }
      end
    end
  end
  return nil
end

-- The jobs that hold the unique keys, and the children that exist already, by position; or a rejection of the call.
local function check(insert_call)
  local held, plan = {}, new_plan()
  for position = 1, #insert_call.jobs / 4 do
    local at = 4 * position
    local name, options = request.names[insert_call.jobs[at - 2]], insert_call.options and insert_call.options[position]
    local key = options and options.key
    local holder = key and planned_holder(plan, name, key)
    local id = insert_call.jobs[at - 3]
    if holder then
      held[position] = holder
    elseif options and options.parent and (known[id] or plan.ids[id]) then
      held[position] = id
    else
      local rejection = reserve(plan, id, name, insert_call.jobs[at - 1], key)
      if rejection then
        return nil, rejection
      end
    end
  end
  return held, check_room(plan.counts)
end

local function every_id()
  local ids, count = {}, 0
  for _, insert_call in ipairs(request.calls) do
    for index = 1, #insert_call.jobs, 4 do
      count = count + 1
      ids[count] = insert_call.jobs[index]
    end
  end
  return ids
end

command('insert', {}, function(_, args)
  begin_line(args)
  promote()
  known = known_ids(every_id())
  local answers, offset = {}, 2
  for index, insert_call in ipairs(request.calls) do
    local held, rejection = check(insert_call)
    answers[index] = rejection or store(insert_call, held, args, offset)
    offset = offset + #insert_call.jobs / 4
  end
  flush_new()
  return answers
end)
