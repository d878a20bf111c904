-- pause, resume: a queue, or one lane of it.
--
-- ARGV[2]  queue, lane or false, paused
-- Returns  whether the queue exists
-- Writes   set, or lane, ring, names
-- Cost     O(bands of the lane · log n)
-- include: write
local name, lane, paused = unpack(decode(ARGV[2]))
local q = queues.get(name)
if not q then return 0 end
if lane then
  local l = queues.lane(q, lane)
  l.paused = paused
  queues.lane_changed(l)
  order.refresh(q, l)
else
  q.paused = paused
  queues.changed(q)
end
order.wake_if_claimable(q)
flush(false)
return 1
