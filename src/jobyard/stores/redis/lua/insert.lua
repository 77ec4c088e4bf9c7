-- Store jobs: several calls that met, each all or nothing.
-- asks: names (queues), calls: { jobs, more by position }
-- further arguments: the records of all jobs, in order
-- answers per call: { first sequence, position and holder's id of those not created } or a reason to refuse:
--   { 'known' or 'twice', id }, { 'queue', name, limit, count }, { 'group', name, group, limit, count }
local function check_room(counts)
  for name, count in pairs(counts) do
    local queue = known_queue(name)
    if queue_lacks(queue, count.all) then
      return { 'queue', name, queue.max_waiting, count.all }
    end
    for group, more in pairs(count.groups) do
      if group_lacks(queue, group, more) then
        return { 'group', name, group, queue.max_waiting_per_group, more }
      end
    end
  end
  return nil
end

-- Who already holds each job's key; or why the call cannot be taken.
local function check(one)
  local held, plan = {}, new_plan()
  for position = 1, #one.jobs / 4 do
    local at = 4 * position
    local name, extra = ask.names[one.jobs[at - 2]], one.more and one.more[position]
    local key = extra and extra.key
    local holder = key and planned_holder(plan, name, key)
    if holder then
      held[position] = holder
    else
      local refusal = reserve(plan, one.jobs[at - 3], name, one.jobs[at - 1], key)
      if refusal then
        return nil, refusal
      end
    end
  end
  return held, check_room(plan.counts)
end

local function every_id()
  local ids, count = {}, 0
  for _, one in ipairs(ask.calls) do
    for index = 1, #one.jobs, 4 do
      count = count + 1
      ids[count] = one.jobs[index]
    end
  end
  return ids
end

command('insert', {}, function(_, args)
  begin_line(args)
  promote()
  known = known_ids(every_id())
  local answers, offset = {}, 2
  for index, one in ipairs(ask.calls) do
    local held, refusal = check(one)
    answers[index] = refusal or store(one, held, args, offset)
    offset = offset + #one.jobs / 4
  end
  flush_new()
  return answers
end)
