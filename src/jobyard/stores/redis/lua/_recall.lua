-- Exchanges whose answer was lost are asked again with the same token: what was answered is answered again, and nothing
-- is done twice. Kept for a while, one answer for each exchange that a worker may have on its way at a time.
-- answer: token (16), then revision, now, refused, queues, sequences
local KEPT_MS = 60000

local function answer_key(order)
  return ROOT .. ':answer:' .. order.worker .. ':' .. order.slot
end

local function keep_answer(order, refused, of, seqs)
  local answer = order.token .. cmsgpack.pack(revision, now, refused, of, seqs)
  call('SET', answer_key(order), answer, 'PX', KEPT_MS)
end

-- As `claim` answers them: those of the leases given then that still hold.
local function given_then(of, seqs)
  local its_queues, its_seqs, records, more = {}, {}, {}, {}
  for index, seq in ipairs(seqs) do
    local key = ROOT .. ':{' .. (of[index] or of[1]) .. '}:'
    local lease = call('HGET', key .. 'leases', seq)
    if lease and sub(lease, 1, 16) == ask.token then
      local at = #its_seqs + 1
      its_queues[at], its_seqs[at], records[at] = of[index] or of[1], seq, call('HGET', key .. 'jobs', seq)
      local past, private = call('HGET', key .. 'past', seq), call('HGET', key .. 'private', seq)
      if past or private then
        more[#more + 1] = { at - 1, past or '', private or '' }
      end
    end
  end
  return its_queues, its_seqs, records, more
end

-- The whole answer given before to this token, or nil.
local function recall()
  local answer = ask.slot and call('GET', answer_key(ask))
  if not answer or sub(answer, 1, 16) ~= ask.token then
    return nil
  end
  local its_revision, its_now, refused, of, seqs = cmsgpack.unpack(sub(answer, 17))
  local its_queues, its_seqs, records, more = given_then(of, seqs)
  return { refused, its_queues, its_seqs, records, more, asked_to_stop(ask.worker), -1, its_revision, its_now }
end
