-- Records of jobs, as the insert wrote them.
-- jobs: created (8) run_at (8) flags (1) priority (8) group (2 + n), then the body, which the client packs and reads: a
--   MessagePack array that starts with id, kind and payload.
local HAS_PRIVATE, HAS_ACTIVE_KEY, HAS_MARKS, HAS_CHANGES, IS_CHILD, IS_WORKFLOW = 1, 2, 4, 8, 16, 32
local PENDING, COMPLETED, FAILED, TIMEOUT, CANCELLED, RUNNING = 0, 1, 2, 3, 4, 5
local FLAGS = 17 -- position
local BLOCK = 12 -- digits that the thousand sequences of a block share

local function format_sequence(number)
  return format('%015d', number)
end

-- flags, priority, group and run_at of the insert
local function job_header(value)
  local _, run_at, flags, priority, group = unpack_bytes('>ddBdHc0', value)
  return flags, priority, group, run_at
end

local function has_flag(flags, flag)
  return flags % (2 * flag) >= flag
end

-- The row with the flag set in its byte at this position.
local function with_flag(value, at, flag)
  local flags = byte(value, at)
  if has_flag(flags, flag) then
    return value
  end
  return sub(value, 1, at - 1) .. string.char(flags + flag) .. sub(value, at + 1)
end

-- The first and last position of the content of a MessagePack string or byte string that starts at `at`.
local function string_at(value, at)
  local kind = byte(value, at)
  if kind < 0xc0 then
    return at + 1, at + kind - 0xa0
  end
  local width = (kind == 0xd9 or kind == 0xc4) and 1 or (kind == 0xda or kind == 0xc5) and 2 or 4
  local size = unpack_bytes(width == 1 and '>B' or width == 2 and '>H' or '>I', value, at + 1)
  return at + width + 1, at + width + size
end

local function id_in(value, group)
  return sub(value, string_at(value, 29 + #group))
end

-- The record with another payload, which is packed already.
local function with_payload(value, payload)
  local _, _, group = job_header(value)
  local _, id_end = string_at(value, 29 + #group)
  local _, kind_end = string_at(value, id_end + 1)
  local _, payload_end = string_at(value, kind_end + 1)
  return sub(value, 1, kind_end) .. payload .. sub(value, payload_end + 1)
end

-- The record of a job that has a place, or false.
local function record_of(queue, seq)
  local record = call('HGET', queue.key .. 'jobs', seq)
  if not record then
    set_aside(queue.name, 'job ' .. seq .. ' has no record')
  end
  return record
end
