-- Replay: an exchange whose reply was lost is repeated with the same token and gets the same response; nothing is done
-- twice. The server keeps one response per slot of a worker, that is per exchange in flight, for a minute.
-- answer: token (16), then revision, now, refused, queues, sequences
local KEPT_MS = 60000

local function response_key(exchange)
  return PREFIX .. ':answer:' .. exchange.worker .. ':' .. exchange.slot
end

local function save_response(exchange, refused, queue_names, seqs)
  local response = exchange.token .. cmsgpack.pack(revision, now, refused, queue_names, seqs)
  call('SET', response_key(exchange), response, 'PX', KEPT_MS)
end

-- As `claim` returns them: the leases granted then that still hold.
local function granted_leases(queue_names, seqs)
  local its_queues, its_seqs, records, options, children = {}, {}, {}, {}, {}
  for index, seq in ipairs(seqs) do
    local key = PREFIX .. ':{' .. (queue_names[index] or queue_names[1]) .. '}:'
    local lease = call('HGET', key .. 'leases', seq)
    if lease and sub(lease, 1, 16) == request.token then
      local at = #its_seqs + 1
      local record = call('HGET', key .. 'jobs', seq)
      its_queues[at], its_seqs[at], records[at] = queue_names[index] or queue_names[1], seq, record
      local changes, private = call('HGET', key .. 'past', seq), call('HGET', key .. 'private', seq)
      if changes or private then
        options[#options + 1] = { at - 1, changes or '', private or '' }
      end
      local parent = record and has_flag(byte(record, FLAGS), IS_CHILD) and call('HGET', key .. 'parents', seq)
      if parent then
        children[#children + 1], children[#children + 2] = at - 1, parent
      end
    end
  end
  return its_queues, its_seqs, records, options, children
end

-- The response given to this token before, or nil.
local function replay()
  local response = request.slot and call('GET', response_key(request))
  if not response or sub(response, 1, 16) ~= request.token then
    return nil
  end
  local its_revision, its_now, refused, queue_names, seqs = cmsgpack.unpack(sub(response, 17))
  local its_queues, its_seqs, records, options, children = granted_leases(queue_names, seqs)
  local cancels = cancel_requests(request.worker)
  return { refused, its_queues, its_seqs, records, options, cancels, -1, its_revision, its_now, {}, children }
end
