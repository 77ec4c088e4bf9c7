-- Compare the counts of each queue with the sizes of its keys, without reading a job.
-- returns each discrepancy as a sentence
command('compare_counts', { 'no-writes' }, function(_, args)
  begin_line(args)
  local wrong = {}
  for _, name in ipairs(all_queues()) do
    local queue = known_queue(name)
    local key, finished = queue.key, queue.completed + queue.failed + queue.cancelled
    local function compare(what, size, expected)
      if size ~= expected then
        wrong[#wrong + 1] = format('queue %s: %s has %d entries instead of %d', name, what, size, expected)
      end
    end
    if reason_aside(queue) then
      wrong[#wrong + 1] = format('queue %s is set aside: %s', name, reason_aside(queue))
    else
      local jobs = queue.waiting + queue.delayed + queue.running + finished
      compare('jobs', call('HLEN', key .. 'jobs'), jobs)
      compare('ids', call('HLEN', key .. 'ids'), jobs)
      compare('delayed', call('ZCARD', key .. 'delayed'), queue.delayed)
      compare('leases', call('HLEN', key .. 'leases'), queue.running)
      compare('done', call('HLEN', key .. 'done'), finished)
      compare('completed', call('ZCARD', key .. 'completed'), queue.completed)
      compare('failed', call('ZCARD', key .. 'failed'), queue.failed + queue.cancelled)
      compare('names', call('ZCARD', key .. 'names'), call('HLEN', key .. 'groups'))
      compare('ended', call('HLEN', key .. 'ended'), call('ZCARD', key .. 'ended_order'))
      compare('its place among the queues', call('ZSCORE', PREFIX .. ':turns', name) and 1 or 0, queue.waiting > 0 and 1 or 0)
      compare('its next due time', call('ZSCORE', PREFIX .. ':due', name) and 1 or 0, queue.delayed > 0 and 1 or 0)
    end
  end
  return wrong
end)
