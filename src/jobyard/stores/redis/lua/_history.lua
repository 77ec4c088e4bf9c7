-- Histories: what a job has recorded and received, by scope and key; and other keys that only some jobs have.
-- history, and signals for the scopes of signals, which a restart keeps:
--   scope (4 + n) key -> number (8) at (8) data (4 + n)
-- history_order, signals_order: scope (4 + n) number (8) key, which sort as text: a page of a scope is a range
-- extra: `entries` is the number of the last entry, `taken:<name>` that of the last signal that the job has taken
local SIGNAL = 'signal:'

local function add_extra(queue, seq)
  call('SADD', queue.key .. 'extras', seq)
  queue.has.extras = true
end

local function drop_extras(queue, seq)
  local keys = {}
  for index, what in ipairs({
    'extra:', 'errors:', 'log:', 'steps:', 'history:', 'history_order:', 'signals:', 'signals_order:',
  }) do
    keys[index] = queue.key .. what .. seq
  end
  call('UNLINK', unpack(keys))
end

-- The keys of the entries of a scope, and of their order.
local function history_keys(queue, seq, scope)
  local kind = sub(scope, 1, #SIGNAL) == SIGNAL and 'signals' or 'history'
  return queue.key .. kind .. ':' .. seq, queue.key .. kind .. '_order:' .. seq
end

local function scope_prefix(scope)
  return pack('>I', #scope) .. scope
end

-- The limits of the entries of a scope with numbers above `number`.
local function entries_after(prefix, number)
  return '[' .. prefix .. pack('>d', number + 1), '(' .. prefix .. '\255'
end

local function count_entries(queue, seq, scope, after_number)
  local _, order = history_keys(queue, seq, scope)
  return call('ZLEXCOUNT', order, entries_after(scope_prefix(scope), after_number))
end

-- Whether the job is a workflow that has recorded something: it ends itself.
local function has_begun(queue, seq, flags)
  return has_flag(flags, IS_WORKFLOW) and count_entries(queue, seq, '', 0) > 0
end

-- Whether one of the conditions { scope, count } holds.
local function may_wake(queue, seq, conditions)
  for _, condition in ipairs(conditions) do
    if count_entries(queue, seq, condition[1], 0) >= condition[2] then
      return true
    end
  end
  return false
end

local function unpack_entry(value)
  return unpack_bytes('>ddIc0', value)
end

-- The entries that are stored already, by key and field.
local function known_entries(queue, seq, list)
  local fields, found = {}, {}
  for index = 1, #list, 3 do
    local key = history_keys(queue, seq, list[index])
    fields[key] = fields[key] or {}
    table.insert(fields[key], scope_prefix(list[index]) .. list[index + 1])
  end
  for key, names in pairs(fields) do
    found[key] = {}
    for index, value in ipairs(hmget(key, names)) do
      found[key][names[index]] = value or nil
    end
  end
  return found
end

-- Write entries, a flat list of scope, key, data. The first one of a scope and key is kept; returns for each the one that
-- is stored: { number, at, data unless it was written now }.
local function write_entries(queue, seq, list)
  local known, answers, writes = known_entries(queue, seq, list), {}, {}
  local extra = queue.key .. 'extra:' .. seq
  local first = tonumber(call('HGET', extra, 'entries') or 0) or 0
  local number = first
  for index = 1, #list, 3 do
    local scope, key, data = list[index], list[index + 1], list[index + 2]
    local hash, order = history_keys(queue, seq, scope)
    local prefix = scope_prefix(scope)
    local value = known[hash][prefix .. key]
    if not value then
      number = number + 1
      value = pack('>ddI', number, now, #data) .. data
      known[hash][prefix .. key] = value
      local mine = writes[hash] or { rows = {}, order = {}, order_key = order }
      writes[hash] = mine
      mine.rows[#mine.rows + 1] = prefix .. key
      mine.rows[#mine.rows + 1] = #mine.rows == 1 and pad(value) or value
      mine.order[#mine.order + 1] = 0
      mine.order[#mine.order + 1] = prefix .. pack('>d', number) .. key
      answers[#answers + 1] = { number, now }
    else
      local its_number, at, its_data = unpack_entry(value)
      answers[#answers + 1] = { its_number, at, its_data }
    end
  end
  if number > first then
    for hash, mine in pairs(writes) do
      call_batched('HSET', hash, mine.rows)
      call_batched('ZADD', mine.order_key, mine.order)
    end
    call('HSET', extra, 'entries', format('%.0f', number))
    add_extra(queue, seq)
  end
  return answers
end

-- Remove all entries except signals, and those of the signals that are named: a flat list of scope, key.
local function clear_history(queue, seq, taken)
  call('UNLINK', queue.key .. 'history:' .. seq, queue.key .. 'history_order:' .. seq)
  for index = 1, #taken, 2 do
    local hash, order = history_keys(queue, seq, taken[index])
    local prefix = scope_prefix(taken[index])
    local value = call('HGET', hash, prefix .. taken[index + 1])
    if value then
      call('HDEL', hash, prefix .. taken[index + 1])
      call('ZREM', order, prefix .. pack('>d', (unpack_entry(value))) .. taken[index + 1])
    end
  end
end

-- The number of the last signal of that name which the job has taken; and the signal that schema 2 kept, if any.
local function taken_signal(queue, seq, name)
  local found = call('HMGET', queue.key .. 'extra:' .. seq, 'taken:' .. name, SIGNAL .. name)
  return tonumber(found[1] or 0) or 0, found[2]
end

-- Take the oldest signal of that name which the job has not taken. Returns its data, or nil.
local take_signal
do
  -- Of the signals of a name that were taken, the last ones are kept, without their data, to recognise one that is sent again.
  local MAX_TAKEN = 100

  local function forget_taken(hash, order, prefix, number, at, field)
    call('HSET', hash, field, pack('>ddI', number, at, 4) .. 'null')
    local to = '[' .. prefix .. pack('>d', number) .. '\255'
    local old = call('ZREVRANGEBYLEX', order, to, '[' .. prefix, 'LIMIT', MAX_TAKEN, 100)
    for _, member in ipairs(old) do
      call('HDEL', hash, prefix .. sub(member, #prefix + 9))
      call('ZREM', order, member)
    end
  end

  function take_signal(queue, seq, name)
    if not has(queue, 'extras') then
      return nil
    end
    local extra, scope = queue.key .. 'extra:' .. seq, SIGNAL .. name
    local taken, old = taken_signal(queue, seq, name)
    if old then
      call('HDEL', extra, scope)
      return old
    end
    local hash, order = history_keys(queue, seq, scope)
    local prefix = scope_prefix(scope)
    local from, to = entries_after(prefix, taken)
    local first = call('ZRANGEBYLEX', order, from, to, 'LIMIT', 0, 1)[1]
    local field = first and prefix .. sub(first, #prefix + 9)
    local value = first and call('HGET', hash, field)
    if not value then
      return nil
    end
    local number, at, data = unpack_entry(value)
    call('HSET', extra, 'taken:' .. name, format('%.0f', number))
    forget_taken(hash, order, prefix, number, at, field)
    return data
  end
end
