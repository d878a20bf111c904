-- Batches of kept ends (see jobs.lua).
-- include: queues, jobs

function BATCHES.leave(j) -- it is kept in another way, or not
  BATCHES.only_end(j)
  local q, b = queue(j.queue), BATCHES.of(j.batch)
  b.said[j.id], b.left, b.touched = nil, b.left - 1, true
  if b.left == 0 then zrem(TIME, 'b' .. q.pre .. n7(j.x.finished) .. n7(j.batch)) end
  q.kept = q.kept - 1
  queue_changed(q)
  j.batch = nil
end

function BATCHES.flush()
  for number, b in pairs(BATCHES.read) do
    if b.touched then
      local left = {}
      for i = 1, #b.ids do left[#left + 1] = b.said[b.ids[i]] end
      hset(PAST, 'B' .. n7(number), #left > 0 and concat(left) or false)
      hset(PAST, 'b' .. n7(number), false)
    end
  end
end
