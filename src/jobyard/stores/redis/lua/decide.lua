-- Decide due instants of schedules in order, each once, as `ports.schedule_store` specifies.
-- schedule: revision (8) decided until (8)
-- tick: instant (8) decided at (8) verdict (1, plus 16 if it stands for several instants: then first (8) count (8)),
--   then the id of a job, if any
-- request: schedules, names (queues), jobs and options (see _insert), ticks: flat: number of the schedule, revision,
--   instant, verdict, 1 to skip when the unique key is held, first, count, number of the job or 0
-- further arguments: the records of the jobs
-- returns for each tick a code, or the id of the key's holder if it was skipped; or one rejection for all
local MADE, KNOWN, STALE, HELD, FULL = 0, 1, 2, 3, 4
local SKIPPED, SEVERAL = 3, 16
local KEPT = 100
local FIELDS = 8
local SCHEDULE, REVISION, AT, VERDICT, SKIPS, FIRST, COUNT, JOB = 1, 2, 3, 4, 5, 6, 7, 8

local function open_schedules()
  local found = {}
  local rows = hmget(PREFIX .. ':schedules', request.schedules)
  for index, name in ipairs(request.schedules) do
    found[index] = false
    if rows[index] then
      local revision, till = unpack_bytes('>dd', rows[index])
      found[index] = { name = name, revision = revision, till = till, stopped = nil, made = {} }
    end
  end
  return found
end

-- MADE or FULL, or the id of the job that holds the unique key; and a rejection of the whole call.
local function judge_job(plan, number)
  local place = 4 * number
  local id, name, group = request.jobs[place - 3], request.names[request.jobs[place - 2]], request.jobs[place - 1]
  local options = request.options and request.options[number]
  local key = options and options.key
  local holder = key and planned_holder(plan, name, key)
  if holder then
    return holder
  end
  local queue, count = known_queue(name), plan.counts[name] or { all = 0, groups = {} }
  -- A queue that is set aside holds its ticks back, and no others.
  if queue and (queue.paused >= SET_ASIDE or exceeds_queue(queue, count.all + 1) or exceeds_group(queue, group, (count.groups[group] or 0) + 1)) then
    return FULL
  end
  return MADE, reserve(plan, id, name, group, key)
end

local function judge(plan, schedule, tick)
  if not schedule or schedule.revision ~= tick[REVISION] then
    return STALE
  elseif tick[AT] <= schedule.till then
    return KNOWN
  elseif schedule.stopped then
    -- Deciding this one would leave the earlier tick undecided forever.
    return schedule.stopped
  elseif tick[JOB] == 0 then
    return MADE
  end
  local outcome, rejection = judge_job(plan, tick[JOB])
  if outcome ~= MADE and (outcome == FULL or tick[SKIPS] == 0) then
    outcome = outcome == FULL and FULL or HELD
    schedule.stopped = outcome
  end
  return outcome, rejection
end

local function record_tick(schedule, tick, outcome)
  local at, first, count, verdict, id = tick[AT], tick[FIRST], tick[COUNT], tick[VERDICT], ''
  if outcome ~= MADE then
    verdict, id = SKIPPED, outcome
  elseif tick[JOB] > 0 then
    id = request.jobs[4 * tick[JOB] - 3]
  end
  local several = ''
  if first ~= at or count ~= 1 then
    verdict, several = verdict + SEVERAL, pack('>dd', first, count)
  end
  local made = schedule.made
  made[#made + 1] = at
  made[#made + 1] = pack('>ddB', at, now, verdict) .. several .. id
  schedule.till = at
end

local function accept(accepted, records, number, record)
  local place, count = 4 * number, #records + 1
  for offset = -3, 0 do
    accepted.jobs[#accepted.jobs + 1] = request.jobs[place + offset]
  end
  accepted.options[count] = request.options and request.options[number]
  records[count] = record
end

local function write_schedules(schedules)
  local rows = {}
  for _, schedule in ipairs(schedules) do
    if schedule and schedule.made[1] then
      local key = PREFIX .. ':ticks:' .. schedule.name
      call_batched('ZADD', key, schedule.made)
      call('ZREMRANGEBYRANK', key, 0, -KEPT - 1)
      local row = pack('>dd', schedule.revision, schedule.till)
      rows[#rows + 1] = schedule.name
      rows[#rows + 1] = #rows == 1 and pad(row) or row
    end
  end
  call_batched('HSET', PREFIX .. ':schedules', rows)
end

command('decide', {}, function(_, args)
  begin_line(args)
  promote()
  local ids = {}
  for index = 1, #request.jobs, 4 do
    ids[#ids + 1] = request.jobs[index]
  end
  known = known_ids(ids)
  local plan, schedules, accepted, records, answers = new_plan(), open_schedules(), { jobs = {}, options = {} }, {}, {}
  for start = 1, #request.ticks, FIELDS do
    local tick = { unpack(request.ticks, start, start + FIELDS - 1) }
    local schedule = schedules[tick[SCHEDULE]]
    local outcome, rejection = judge(plan, schedule, tick)
    if rejection then
      flush()
      return { rejection }
    end
    answers[#answers + 1] = outcome
    if outcome == MADE and tick[JOB] > 0 then
      accept(accepted, records, tick[JOB], args[2 + tick[JOB]])
    end
    if outcome == MADE or type(outcome) == 'string' then
      record_tick(schedule, tick, outcome)
    end
  end
  store(accepted, {}, records, 0)
  write_schedules(schedules)
  flush_new()
  return answers
end)
