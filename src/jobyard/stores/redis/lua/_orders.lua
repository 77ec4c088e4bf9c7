-- Standing orders: an exchange that found nothing waits on the server. Whatever makes a job claimable claims it for the
-- order at once and sends the leases along, instead of waking a worker that would have to come and ask.
-- order: handle, worker, token, slot, wanted, lease (ms), queues, expires

-- The next order for a job of the queue. One that has expired, or whose handle hears nothing, is dropped.
local function next_order(queue)
  while true do
    local token = call('SPOP', queue.key .. 'orders') or call('SPOP', ROOT .. ':orders')
    if not token then
      return nil
    end
    local packed = call('HGET', ROOT .. ':order', token)
    local order = packed and cmsgpack.unpack(packed)
    if order and order.expires > now and call('PUBSUB', 'NUMSUB', ROOT .. ':to:' .. order.handle)[2] > 0 then
      return order
    elseif order then
      call('HDEL', ROOT .. ':order', token)
    end
  end
end

local function stand(order)
  for _, name in ipairs(order.queues) do
    call('SADD', ROOT .. ':{' .. name .. '}:orders', order.token)
  end
  if #order.queues == 0 then
    call('SADD', ROOT .. ':orders', order.token)
  end
end

local function lie_down(order)
  call('HDEL', ROOT .. ':order', order.token)
  for _, name in ipairs(order.queues) do
    call('SREM', ROOT .. ':{' .. name .. '}:orders', order.token)
  end
  if #order.queues == 0 then
    call('SREM', ROOT .. ':orders', order.token)
  end
end

-- Claims for orders as long as something is left that arrived.
function fill_orders(queue)
  while queue.arrived > 0 do
    local order = next_order(queue)
    if not order then
      return
    end
    local of, seqs, records, more = claim(order.worker, order.token, order.queues, order.wanted, order.lease)
    if #seqs == 0 then
      stand(order)
      return
    end
    lie_down(order)
    queue.arrived = queue.arrived < EVERYBODY and math.max(0, queue.arrived - #seqs) or EVERYBODY
    filled[#filled + 1] = { order, of, seqs, records, more }
  end
end

-- Each is an exchange of its own, with a revision of its own.
function send_filled()
  for _, one in ipairs(filled) do
    local order, of, seqs, records, more = unpack(one)
    revision = revision + 1
    keep_answer(order, {}, of, seqs)
    local flat = {}
    for _, extra in ipairs(more) do
      flat[#flat + 1] = format('%d', extra[1])
      flat[#flat + 1], flat[#flat + 2] = extra[2], extra[3]
    end
    local parts = { order.token, format('%d', revision), format('%.0f', now), join(of), join(seqs), join(records) }
    parts[#parts + 1] = join(flat)
    call('PUBLISH', ROOT .. ':to:' .. order.handle, 'x' .. join(parts))
  end
end

-- Something happened that all who wait should look at, and it is not only a job.
function call_back_orders(queue)
  while true do
    local order = next_order(queue)
    if not order then
      return
    end
    lie_down(order)
    call('PUBLISH', ROOT .. ':to:' .. order.handle, 'l' .. order.token)
  end
end
