-- Waiting claims: an exchange that found nothing waits on the server. The command that makes a job claimable also claims
-- it for the waiting exchange and publishes the leases, which saves the worker a round trip.
-- order: handle (id of a subscriber), worker, token, slot, wanted, lease (ms), queues, expires

-- The next claim that waits for a job of the queue. An expired one, or one without a subscriber, is dropped.
local function next_claim(queue)
  while true do
    local token = call('SPOP', queue.key .. 'orders') or call('SPOP', PREFIX .. ':orders')
    if not token then
      return nil
    end
    local packed = call('HGET', PREFIX .. ':order', token)
    local pending = packed and cmsgpack.unpack(packed)
    if pending and pending.expires > now and has_subscriber(pending.handle) then
      return pending
    elseif pending then
      call('HDEL', PREFIX .. ':order', token)
    end
  end
end

local function add_claim(pending)
  for _, name in ipairs(pending.queues) do
    call('SADD', PREFIX .. ':{' .. name .. '}:orders', pending.token)
  end
  if #pending.queues == 0 then
    call('SADD', PREFIX .. ':orders', pending.token)
  end
end

local function remove_claim(pending)
  call('HDEL', PREFIX .. ':order', pending.token)
  for _, name in ipairs(pending.queues) do
    call('SREM', PREFIX .. ':{' .. name .. '}:orders', pending.token)
  end
  if #pending.queues == 0 then
    call('SREM', PREFIX .. ':orders', pending.token)
  end
end

-- Claim for waiting exchanges while arrived jobs are left.
function serve_claims(queue)
  while queue.arrived > 0 do
    local pending = next_claim(queue)
    if not pending then
      return
    end
    local queue_names, seqs, records, options, children =
      claim(pending.worker, pending.token, pending.queues, pending.wanted, pending.lease)
    if #seqs == 0 then
      add_claim(pending)
      return
    end
    remove_claim(pending)
    queue.arrived = queue.arrived < ALL_WAITERS and math.max(0, queue.arrived - #seqs) or ALL_WAITERS
    served[#served + 1] = { pending, queue_names, seqs, records, options, children }
  end
end

-- Publish the leases; each served claim is an exchange with a revision of its own.
function publish_served()
  for _, one in ipairs(served) do
    local pending, queue_names, seqs, records, options, children = unpack(one)
    revision = revision + 1
    save_response(pending, {}, queue_names, seqs)
    local flat = {}
    for _, option in ipairs(options) do
      flat[#flat + 1] = format('%d', option[1])
      flat[#flat + 1], flat[#flat + 2] = option[2], option[3]
    end
    local parts = { pending.token, format('%d', revision), format('%.0f', now), join(queue_names), join(seqs), join(records) }
    parts[#parts + 1] = join(flat)
    -- Only if there are any: clients of schema 2 expect no more parts.
    if children[1] then
      for index = 1, #children, 2 do
        children[index] = format('%d', children[index])
      end
      parts[#parts + 1] = join(children)
    end
    publish(pending.handle, 'x' .. join(parts))
  end
end

-- Let all waiting claims of the queue check again: more changed than a job that arrived.
function notify_claims(queue)
  while true do
    local pending = next_claim(queue)
    if not pending then
      return
    end
    remove_claim(pending)
    publish(pending.handle, 'l' .. pending.token)
  end
end
