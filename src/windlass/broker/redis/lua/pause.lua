-- pause, resume: a queue, or one lane of it.
--
-- ARGV[2]  queue, lane or false, paused
-- Returns  whether the queue exists
-- Writes   set, or lane, ring, names
-- Cost     O(bands of the lane · log n)
-- include: flush
local a = unpack_(ARGV[2])
local q = queue(a[1])
if not q then return 0 end
if a[2] then
  local l = lane_of(q, a[2])
  l.p = a[3]
  lane_changed(l)
  refresh(q, l)
else
  q.paused = a[3]
  queue_changed(q)
end
wake_if_claimable(q)
flush(false)
return 1
