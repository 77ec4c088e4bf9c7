-- What every command begins with: the question, the clock, and how to send many values at once.
-- Everything here and in the other shared files is made once, when the library is loaded; what belongs to one call is
-- set by `begin`.
local FOREVER, UNLIMITED = 253402300799999, 9007199254740992
local ROOT, ask, now
local call, pack, unpack_bytes, sub, byte, format -- there is none of these yet while the library is loaded

-- The server's clock decides; only a test that turns time by hand sends its own.
local function begin(args)
  call, pack, unpack_bytes = redis.call, struct.pack, struct.unpack
  sub, byte, format = string.sub, string.byte, string.format
  ROOT, ask = args[1], cmsgpack.unpack(args[2])
  now = ask.now
  if now == 0 then
    local time = call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
    -- It was held up on its way, and whoever asked has given up: it must not take effect behind his back.
    if ask.useful_until and now > ask.useful_until then
      error({ err = 'LATE this command came too late to be executed' })
    end
  end
end

local function command(name, flags, callback)
  redis.register_function({ function_name = LIBRARY .. '_' .. name, callback = callback, flags = flags })
end

local function after(milliseconds)
  return math.min(FOREVER, now + milliseconds)
end

-- Lua cannot spread more than about 8000 values over one call.
local AT_ONCE = 4000

local function many(command, key, list)
  local count = #list
  if count == 0 then
    return
  end
  if count <= AT_ONCE then
    call(command, key, unpack(list))
    return
  end
  for first = 1, count, AT_ONCE do
    call(command, key, unpack(list, first, math.min(first + AT_ONCE - 1, count)))
  end
end

-- The values of many fields of a hash, in the order of the fields.
local function fetch(key, fields)
  local count = #fields
  if count == 0 then
    return {}
  end
  if count <= AT_ONCE then
    return call('HMGET', key, unpack(fields))
  end
  local values = {}
  for first = 1, count, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, count)
    local some = call('HMGET', key, unpack(fields, first, last))
    for index = 1, last - first + 1 do
      values[first + index - 1] = some[index]
    end
  end
  return values
end

-- Redis keeps a small hash as a list that it walks for every field. One value of more than 64 bytes makes it a real
-- hash, so the first value of each write is made that long; readers know where a value ends.
local function pad(value)
  local size = #value
  return size > 64 and value or value .. string.rep('\0', 65 - size)
end

-- Several byte strings as one, each with its length before it.
local function join(list)
  local parts = {}
  for index = 1, #list do
    parts[index] = pack('>I', #list[index]) .. list[index]
  end
  return table.concat(parts)
end
