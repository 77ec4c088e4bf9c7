-- Leases given in an exchange whose answer was lost on its way: the worker is given them again, with their token.
-- Answers rows: { queue, sequence, record, past, private payload, token }
local function recover(worker, tokens, wanted, lease_ms)
  local rows, lost = {}, {}
  for _, token in ipairs(tokens) do
    lost[token] = true
  end
  for _, name in ipairs(all_queues()) do
    local key = ROOT .. ':{' .. name .. '}:'
    local list = key .. 'lease:' .. worker
    for _, seq in ipairs(call('ZRANGE', list, 0, -1)) do
      local token = sub(call('HGET', key .. 'leases', seq), 1, 16)
      if lost[token] and #rows < wanted then
        call('ZADD', list, 'XX', after(lease_ms), seq)
        rows[#rows + 1] = {
          name, seq, call('HGET', key .. 'jobs', seq), call('HGET', key .. 'past', seq) or '',
          call('HGET', key .. 'private', seq) or '', token,
        }
      end
    end
  end
  return rows
end
