-- Start of every command: the request and the clock; and calls with many values.
-- Everything here and in the other shared files is created once, when the library is loaded; the state of one call is
-- set by `begin`.
local FOREVER, UNLIMITED = 253402300799999, 9007199254740992
local PREFIX, request, now
local protected_call, pack, unpack_bytes, sub, byte, format -- not available yet while the library is loaded
local set_aside -- defined in _queue_line

-- A key of a queue that cannot be used must not fail a command that has written already, because nothing is rolled back:
-- the queue is set aside, and the key counts as empty.
local NO_NUMBER = {
  EXISTS = 1, HDEL = 1, HEXISTS = 1, HINCRBY = 1, HLEN = 1, HSETNX = 1, LLEN = 1, RPUSH = 1, SADD = 1, SCARD = 1, SISMEMBER = 1,
  SREM = 1, ZADD = 1, ZCARD = 1, ZCOUNT = 1, ZLEXCOUNT = 1, ZREM = 1,
}
local NO_VALUE = { GET = 1, HGET = 1, SPOP = 1, ZSCORE = 1 }

local function unusable(reply, command, key)
  local name = string.match(key or '', '^:{(.-)}:', #PREFIX + 1)
  if not name then
    error(reply)
  end
  set_aside(name, sub(key, #PREFIX + 2) .. ' cannot be used: ' .. reply.err)
  return NO_NUMBER[command] and 0 or not NO_VALUE[command] and {}
end

local function call(command, key, ...)
  local reply = protected_call(command, key, ...)
  if type(reply) == 'table' and reply.err then
    return unusable(reply, command, key)
  end
  return reply
end

-- Returns the number of receivers. A notification may be lost, so its failure is none of the command: waiters poll.
local function publish(handle, message)
  local count = protected_call('PUBLISH', PREFIX .. ':to:' .. handle, message)
  return type(count) == 'number' and count or 0
end

local function has_subscriber(handle)
  local reply = protected_call('PUBSUB', 'NUMSUB', PREFIX .. ':to:' .. handle)
  return not reply.err and reply[2] > 0
end

-- The server's clock decides; only a test with a clock of its own sends `now`.
local function begin(args)
  protected_call, pack, unpack_bytes = redis.pcall, struct.pack, struct.unpack
  sub, byte, format = string.sub, string.byte, string.format
  PREFIX, request = args[1], cmsgpack.unpack(args[2])
  now = request.now
  if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
    -- The command was delayed on its way and its caller has given up: it must not take effect any more.
    if request.deadline and now > request.deadline then
      error({ err = 'LATE the command arrived after its deadline' })
    end
  end
end

local function command(name, flags, callback)
  redis.register_function({ function_name = LIBRARY .. '_' .. name, callback = callback, flags = flags })
end

local function after(milliseconds)
  return math.min(FOREVER, now + milliseconds)
end

-- Lua's unpack fails beyond about 8000 values.
local MAX_ARGUMENTS = 4000

-- Not by `call`, which would copy all arguments once more.
local function call_batched(command, key, list)
  local count = #list
  for first = 1, count, MAX_ARGUMENTS do
    local reply = protected_call(command, key, unpack(list, first, math.min(first + MAX_ARGUMENTS - 1, count)))
    if type(reply) == 'table' and reply.err then
      unusable(reply, command, key)
    end
  end
end

-- The replies to a command with many arguments, as one list.
local function read_batched(command, key, list)
  local count = #list
  if count == 0 then
    return {}
  end
  if count <= MAX_ARGUMENTS then
    return call(command, key, unpack(list))
  end
  local values = {}
  for first = 1, count, MAX_ARGUMENTS do
    local last = math.min(first + MAX_ARGUMENTS - 1, count)
    local some = call(command, key, unpack(list, first, last))
    for index = 1, last - first + 1 do
      values[first + index - 1] = some[index]
    end
  end
  return values
end

-- The values of many fields of a hash, in the order of the fields.
local function hmget(key, fields)
  return read_batched('HMGET', key, fields)
end

-- Redis stores a small hash as a list, which it scans for every field. One value of more than 64 bytes turns it into a
-- hash table, so the first value of each write is padded to that length; readers know where a value ends.
local function pad(value)
  local size = #value
  return size > 64 and value or value .. string.rep('\0', 65 - size)
end

-- Several byte strings as one, each behind its length.
local function join(list)
  local parts = {}
  for index = 1, #list do
    parts[index] = pack('>I', #list[index]) .. list[index]
  end
  return table.concat(parts)
end
