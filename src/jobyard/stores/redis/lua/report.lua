-- Record progress, log lines and steps of running attempts.
-- request: kept (lines), reports: { queue or false, sequence, id, token, progress or false, lines, step name or false,
--   step, whether it is running }
-- returns the positions of the refused
local function put_step(key, name, step, is_running)
  local known = call('HGET', key, name)
  local order, started = call('HLEN', key), now
  if known then
    local its_order, its_start = unpack_bytes('>Id', known)
    order, started = its_order, is_running and now or its_start
  end
  call('HSET', key, name, pack('>Idd', order, started, is_running and -1 or now) .. step)
end

command('report', {}, function(_, args)
  begin_line(args)
  local refused, stamp = {}, pack('>d', now)
  for index, report in ipairs(request.reports) do
    local name, seq, id, token, progress, lines, step_name, step, is_running = unpack(report)
    name = name or queue_holding(id)
    local queue = name and known_queue(name)
    local lease = queue and call('HGET', queue.key .. 'leases', seq)
    if not lease or sub(lease, 1, 16) ~= token then
      refused[#refused + 1] = index
    else
      if progress then
        call('HSET', queue.key .. 'extra:' .. seq, 'progress', stamp .. progress)
      end
      if #lines > 0 then
        for position, line in ipairs(lines) do
          lines[position] = stamp .. line
        end
        call_batched('RPUSH', queue.key .. 'log:' .. seq, lines)
        call('LTRIM', queue.key .. 'log:' .. seq, -request.kept, -1)
      end
      if step_name then
        put_step(queue.key .. 'steps:' .. seq, step_name, step, is_running)
      end
      add_extra(queue, seq)
    end
  end
  return refused
end)
