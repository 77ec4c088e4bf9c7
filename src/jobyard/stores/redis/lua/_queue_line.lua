-- Queues and groups in line: rows are loaded once per command, changed in memory and written back by `flush`.
local sequence, turn, finish_number, revision
local due -- the earliest time of any delayed job: tells without a read whether a job became due
local rows -- written by one MSET at the end
local queues, loaded, holders
-- queue: settings, counts, turn, pause, then what schema 4 added; a negative setting means no limit
local SETTINGS = {
  'max_running', 'max_per_group', 'max_waiting', 'max_waiting_per_group', 'keep_completed', 'keep_failed',
  'keep_completed_ms', 'keep_failed_ms', 'keep_at_most',
}
local QUEUE = '>ddddddddddddddddddd'
local NEW_QUEUE = { -1, -1, -1, -1, 100, 50, 3600000, 0, 0, 0, 0, 0, 0, 0, 0, 604800000, 100000, 0, 0 }
local SET_ASIDE = 2 -- added to `paused`
local COUNTERS = '>ddddd'

local function all_queues()
  return call('SMEMBERS', PREFIX .. ':queues')
end

-- Counters above everything stored, when their row was lost.
local function restore_counters()
  sequence, turn, finish_number, revision, due = 0, 0, 0, 0, FOREVER
  local function last(key)
    return tonumber(call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
  end
  for _, name in ipairs(all_queues()) do
    local key = PREFIX .. ':{' .. name .. '}:'
    sequence = math.max(sequence, 1000 * (last(key .. 'blocks') + 1))
    turn = math.max(turn, last(key .. 'line'), last(PREFIX .. ':turns'))
    finish_number = math.max(finish_number, last(key .. 'completed'), last(key .. 'failed'))
    revision = now
  end
  due = tonumber(call('ZRANGE', PREFIX .. ':due', 0, 0, 'WITHSCORES')[2] or FOREVER)
end

local function begin_line(args)
  begin(args)
  queues, loaded, holders = {}, {}, {}
  local row = call('GET', PREFIX .. ':counter')
  if row then
    sequence, turn, finish_number, revision, due = unpack_bytes(COUNTERS, row)
  else
    restore_counters()
  end
end

local function remember_queue(
  name, key, max_running, max_per_group, max_waiting, max_waiting_per_group, keep_completed, keep_failed, keep_completed_ms,
  waiting, delayed, running, completed, failed, cancelled, its_turn, paused, keep_failed_ms, keep_at_most,
  removed_by_cap, removed_by_cap_at
)
  local queue = {
    name = name, key = key, max_running = max_running, max_per_group = max_per_group, max_waiting = max_waiting,
    max_waiting_per_group = max_waiting_per_group, keep_completed = keep_completed, keep_failed = keep_failed,
    keep_completed_ms = keep_completed_ms, keep_failed_ms = keep_failed_ms, keep_at_most = keep_at_most,
    waiting = waiting, delayed = delayed, running = running, completed = completed, failed = failed,
    cancelled = cancelled, turn = its_turn, paused = paused,
    removed_by_cap = removed_by_cap, removed_by_cap_at = removed_by_cap_at,
    was_waiting = waiting, was_turn = its_turn, groups = {}, has = {}, blocks = {}, contents = {}, ends = {},
    arrived = 0, dirty = false,
  }
  queues[name] = queue
  loaded[#loaded + 1] = queue
  return queue
end

local function queue_row(queue)
  return pack(
    QUEUE, queue.max_running, queue.max_per_group, queue.max_waiting, queue.max_waiting_per_group,
    queue.keep_completed, queue.keep_failed, queue.keep_completed_ms, queue.waiting, queue.delayed, queue.running,
    queue.completed, queue.failed, queue.cancelled, queue.turn, queue.paused,
    queue.keep_failed_ms, queue.keep_at_most, queue.removed_by_cap, queue.removed_by_cap_at
  )
end

-- The values of a row of schema 3, which had one age for all finished jobs: 0 was its default. A process of that version
-- that still runs writes such rows too, with the present age of completed jobs.
local function old_queue(row)
  local values, keep_at = { unpack_bytes('>ddddddddddddddd', row) }, 7
  local keep = values[keep_at]
  local is_default = keep == 0 or keep == NEW_QUEUE[keep_at]
  values[keep_at] = is_default and NEW_QUEUE[keep_at] or keep
  for index = 16, #NEW_QUEUE do
    values[index] = NEW_QUEUE[index]
  end
  values[16] = is_default and values[16] or keep
  return unpack(values)
end

-- The queue, or false if it does not exist.
local function known_queue(name)
  local queue = queues[name]
  if queue == nil then
    local key = PREFIX .. ':{' .. name .. '}:'
    queues[name] = false
    local row = call('GET', key .. 'queue')
    if row then
      if #row == 120 then
        queue = remember_queue(name, key, old_queue(row))
      else
        queue = remember_queue(name, key, unpack_bytes(QUEUE, row))
      end
    elseif call('SISMEMBER', PREFIX .. ':queues', name) == 1 then
      queue = remember_queue(name, key, unpack(NEW_QUEUE))
      set_aside(name, 'its settings and counts are missing')
    end
  end
  return queue or false
end

-- Take a queue out of use when its data contradicts itself: nothing is claimed from it until `repair` has repaired it.
function set_aside(name, reason)
  local queue = queues[name] or known_queue(name)
  if queue and not queue.reason then
    queue.reason, queue.dirty, queue.delayed_changed = reason, true, true
    queue.paused = queue.paused % SET_ASIDE + SET_ASIDE
  end
end

-- The queues that this command set aside: name, reason of each.
local function set_aside_now()
  local found = {}
  for _, queue in ipairs(loaded) do
    if queue.reason then
      found[#found + 1] = { queue.name, queue.reason }
    end
  end
  return found
end

-- Why the queue is set aside, or nil.
local function reason_aside(queue)
  if queue and queue.paused >= SET_ASIDE then
    return queue.reason or call('HGET', PREFIX .. ':damaged', queue.name) or 'unknown reason'
  end
  return nil
end

-- The queue, created with default settings if it does not exist.
local function queue_of(name)
  local queue = known_queue(name)
  if not queue then
    local key = PREFIX .. ':{' .. name .. '}:'
    queue = remember_queue(name, key, unpack(NEW_QUEUE))
    queue.is_new, queue.dirty = true, true
  end
  return queue
end

-- Whether the queue has a key of this kind: most queues have none, which saves the reads and deletes.
local function has(queue, what)
  local known = queue.has[what]
  if known == nil then
    known = call('EXISTS', queue.key .. what) == 1
    queue.has[what] = known
  end
  return known
end

local function queue_room(queue)
  if queue.paused ~= 0 then
    return 0
  end
  return (queue.max_running < 0 and UNLIMITED or queue.max_running) - queue.running
end

-- How many due jobs of the group may start by the limits of the group.
local function room(queue, group)
  if group.paused == 1 then
    return 0
  end
  local limit = group.limit
  if limit < 0 then
    limit = (group.name == '' or queue.max_per_group < 0) and UNLIMITED or queue.max_per_group
  end
  return math.min(group.waiting, limit - group.running)
end

local ROW = '>IIIddB'

local function remember_group(queue, name, row)
  local waiting, delayed, running, its_turn, limit, paused = 0, 0, 0, 0, -1, 0
  if row then
    waiting, delayed, running, its_turn, limit, paused = unpack_bytes(ROW, row)
  end
  local group = {
    name = name, queue = queue, waiting = waiting, delayed = delayed, running = running, turn = its_turn,
    limit = limit, paused = paused, stored = row and true, line_turn = its_turn, open = false, dirty = false,
  }
  group.open = row and room(queue, group) > 0
  queue.groups[name] = group
  return group
end

-- The group, to be changed.
local function group_of(queue, name)
  local group = queue.groups[name] or remember_group(queue, name, call('HGET', queue.key .. 'groups', name))
  group.dirty = true
  return group
end

local function load_groups(queue, names)
  local missing = {}
  for _, name in ipairs(names) do
    if not queue.groups[name] then
      missing[#missing + 1] = name
    end
  end
  local rows = hmget(queue.key .. 'groups', missing)
  for index, name in ipairs(missing) do
    if not queue.groups[name] then
      remember_group(queue, name, rows[index])
    end
  end
end

-- Count due jobs that joined their group; a group or queue that had none goes to the end of its line.
local function arrive(group, its_count)
  local queue = group.queue
  if group.waiting == 0 then
    turn = turn + 1
    group.turn = turn
  end
  if queue.waiting == 0 then
    turn = turn + 1
    queue.turn = turn
  end
  group.waiting = group.waiting + its_count
  queue.waiting = queue.waiting + its_count
  group.dirty, queue.dirty = true, true
  if room(queue, group) > 0 then
    queue.arrived = queue.arrived + its_count
  end
end

-- A count below zero shows that counts were lost.
local function count(group, what, change)
  local queue = group.queue
  local left, left_of_queue = group[what] + change, queue[what] + change
  if left < 0 or left_of_queue < 0 then
    set_aside(queue.name, 'it counts fewer jobs as ' .. what .. ' than there are')
    left, left_of_queue = math.max(0, left), math.max(0, left_of_queue)
  end
  group[what], queue[what] = left, left_of_queue
  group.dirty, queue.dirty = true, true
end

local function leave(group, its_count)
  count(group, 'waiting', -its_count)
end

local function delay(group, change)
  count(group, 'delayed', change)
  group.queue.delayed_changed = true
end

local function run(group, change)
  count(group, 'running', change)
  if change < 0 then
    group.queue.freed = true
  end
end

local function group_row(group)
  return pack(ROW, group.waiting, group.delayed, group.running, group.turn, group.limit, group.paused)
end

-- Collect the row of a group, and its name for the list of groups with a row.
local function write_group(group, rows, names, gone)
  local is_idle = group.waiting + group.delayed + group.running + group.paused == 0 and group.limit < 0
  if not is_idle then
    local at = #rows
    local row = group_row(group)
    rows[at + 1], rows[at + 2] = group.name, group.stored and row or pad(row)
    if not group.stored then
      at = #names
      names[at + 1], names[at + 2] = 0, group.name
    end
  elseif group.stored then
    gone[#gone + 1] = group.name
  end
  group.stored = not is_idle
end

local function flush_groups(queue)
  local key = queue.key
  local rows, names, gone, enter, exit = {}, {}, {}, {}, {}
  for name, group in pairs(queue.groups) do
    if group.dirty then
      group.dirty = false
      local is_open = room(queue, group) > 0
      if is_open and (not group.open or group.turn ~= group.line_turn) then
        local at = #enter
        enter[at + 1], enter[at + 2] = group.turn, name
      elseif group.open and not is_open then
        exit[#exit + 1] = name
      end
      group.open, group.line_turn = is_open, group.turn
      write_group(group, rows, names, gone)
    end
  end
  if rows[1] then call_batched('HSET', key .. 'groups', rows) end
  if names[1] then call_batched('ZADD', key .. 'names', names) end
  if gone[1] then
    call_batched('HDEL', key .. 'groups', gone)
    call_batched('ZREM', key .. 'names', gone)
  end
  if enter[1] then call_batched('ZADD', key .. 'line', enter) end
  if exit[1] then call_batched('ZREM', key .. 'line', exit) end
end

-- Update the earliest due time of a queue.
local function flush_due(queue)
  local first = call('ZRANGE', queue.key .. 'delayed', 0, 0, 'WITHSCORES')
  if not first[2] or queue.paused >= SET_ASIDE then
    call('ZREM', PREFIX .. ':due', queue.name)
    return
  end
  local before = call('ZSCORE', PREFIX .. ':due', queue.name)
  if before ~= first[2] then
    call('ZADD', PREFIX .. ':due', first[2], queue.name)
    -- Sleepers must wake up earlier than they planned.
    queue.sooner = not before or tonumber(first[2]) < tonumber(before)
  end
end

local function flush_delayed(queue)
  flush_due(queue)
  local first = call('ZRANGE', PREFIX .. ':due', 0, 0, 'WITHSCORES')
  due = first[2] and tonumber(first[2]) or FOREVER
end

-- contents:<block>: which groups (g), kinds (k) and ends other than COMPLETED (s) a block holds or has held, as fields of
-- a hash. `find` skips the blocks without those it looks for. block_ends: block → COMPLETED jobs, plus OTHER_END for each
-- job with another end, so that one command counts both. A block that was begun before these were kept lacks WHOLE, and is
-- never skipped.
-- One table, because Lua allows 200 local definitions in the library.
local contents = { WHOLE = '==', OTHER_END = 1000000 }

-- Count the ends of a block: one more, or one less.
function contents.count_end(queue, block, is_completed, change)
  queue.ends[block] = (queue.ends[block] or 0) + (is_completed and change or change * contents.OTHER_END)
end

-- How many jobs of a block are COMPLETED, and how many have ended otherwise.
function contents.ends_of(queue, block)
  local packed = tonumber(call('HGET', queue.key .. 'block_ends', block) or 0)
  return packed % contents.OTHER_END, math.floor(packed / contents.OTHER_END)
end

function contents.note(queue, block, name)
  local names = queue.contents[block]
  if not names then
    names = {}
    queue.contents[block] = names
  end
  names[name] = true
end

function contents.flush(queue)
  for block, names in pairs(queue.contents) do
    local fields = {}
    for name in pairs(names) do
      fields[#fields + 1], fields[#fields + 2] = name, ''
    end
    call_batched('HSET', queue.key .. 'contents:' .. block, fields)
  end
  queue.contents = {}
end

local function flush_queue(queue)
  flush_groups(queue)
  if queue.is_new then
    queue.is_new = false
    call('SADD', PREFIX .. ':queues', queue.name)
  end
  rows[#rows + 1] = queue.key .. 'queue'
  rows[#rows + 1] = queue_row(queue)
  if queue.reason then
    flush_delayed(queue)
    call('HSET', PREFIX .. ':damaged', queue.name, queue.reason)
    redis.log(redis.LOG_WARNING, format('jobyard: queue %s is set aside: %s', queue.name, queue.reason))
  end
  if queue.paused >= SET_ASIDE then
    call('ZREM', PREFIX .. ':turns', queue.name)
  elseif queue.waiting == 0 then
    if queue.was_waiting ~= 0 then
      call('ZREM', PREFIX .. ':turns', queue.name)
    end
  elseif queue.was_waiting == 0 or queue.turn ~= queue.was_turn then
    call('ZADD', PREFIX .. ':turns', queue.turn, queue.name)
  end
  queue.was_waiting, queue.was_turn = queue.waiting, queue.turn
  -- Which blocks of a thousand sequences hold jobs: `find` skips the others.
  for block, change in pairs(queue.blocks) do
    if change ~= 0 then
      local count = call('HINCRBY', queue.key .. 'block', block, change)
      if count == 0 then
        call('HDEL', queue.key .. 'block', block)
        call('ZREM', queue.key .. 'blocks', block)
        call('UNLINK', queue.key .. 'contents:' .. block)
        call('HDEL', queue.key .. 'block_ends', block)
        queue.contents[block], queue.ends[block] = nil, nil
      elseif count == change then
        call('ZADD', queue.key .. 'blocks', tonumber(block), block)
        contents.note(queue, block, contents.WHOLE)
      end
    end
  end
  for block, change in pairs(queue.ends) do
    if change ~= 0 then
      call('HINCRBY', queue.key .. 'block_ends', block, change)
    end
  end
  contents.flush(queue)
  queue.blocks, queue.ends = {}, {}
end

-- Wake handles, that is subscribers of event loops, that sleep until a job may be claimable: as many as jobs arrived,
-- because waking a whole fleet for one job costs more than the job. A woken handle is removed from the list, and
-- registers when it sleeps again.
local ALL_WAITERS = 1000000

local function notify_sleepers(key, queue, count)
  while count > 0 do
    local handle = call('SPOP', key)
    if not handle then
      return count
    end
    -- A handle of a dead process has no subscriber and does not count.
    if publish(handle, 'w' .. queue.name) > 0 then
      count = count - 1
    end
  end
  return 0
end

local function wake_sleepers(queue)
  local left = notify_sleepers(queue.key .. 'sleepers', queue, queue.arrived)
  notify_sleepers(PREFIX .. ':sleepers', queue, left)
end

-- Waiting claims are served before the rows are written, because a claim changes them.
local serve_claims, publish_served, notify_claims -- defined in _waiting_claims
local served

local function has_waiters(queue)
  return call(
    'EXISTS', queue.key .. 'orders', PREFIX .. ':orders', queue.key .. 'sleepers', PREFIX .. ':sleepers'
  ) > 0
end

local function flush_all()
  rows = {}
  for _, queue in ipairs(loaded) do
    while queue.dirty do -- again if a write showed that the queue must be set aside
      queue.dirty = false
      flush_queue(queue)
    end
    if queue.stop_changed and call('EXISTS', queue.key .. 'stop') == 0 then
      call('SREM', PREFIX .. ':stopping', queue.name)
    end
  end
  return #rows > 0
end

-- Serve waiting claims, write all changes and wake sleepers. Returns the revision of this command itself.
local function flush()
  local woken_queues = {}
  served = {}
  for index = 1, #loaded do
    local queue = loaded[index]
    if queue.delayed_changed then
      flush_delayed(queue)
      if queue.sooner then
        queue.arrived = ALL_WAITERS
      end
    end
    if queue.arrived > 0 and has_waiters(queue) then
      woken_queues[#woken_queues + 1] = queue
      serve_claims(queue)
    end
  end
  if flush_all() then
    revision = revision + 1
  end
  local own_revision = revision
  publish_served()
  if #rows > 0 then
    rows[#rows + 1] = PREFIX .. ':counter'
    rows[#rows + 1] = pack(COUNTERS, sequence, turn, finish_number, revision, due)
    for first = 1, #rows, MAX_ARGUMENTS do
      call('MSET', unpack(rows, first, math.min(first + MAX_ARGUMENTS - 1, #rows)))
    end
  end
  for _, queue in ipairs(woken_queues) do
    if queue.arrived >= ALL_WAITERS then
      notify_claims(queue)
    end
    wake_sleepers(queue)
  end
  return own_revision
end

-- When the next delayed job of any queue becomes due, or -1.
local function next_due()
  return due < FOREVER and due or -1
end
