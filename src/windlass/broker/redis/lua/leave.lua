-- leave: somebody waits no longer. One who was told and will not act on it lets another be told.
--
-- ARGV[2]  queues, channel, number of the waiter, since when, pass the wake on
-- Returns  1
-- Writes   names; set
-- Cost     O(queues · log n)
-- include: flush
local a = unpack_(ARGV[2])
for i = 1, #a[1] do
  zrem(NAMES, 'w' .. a[1][i] .. NUL .. n7(a[4]) .. a[2] .. NUL .. a[3])
  if a[5] then ARMED[a[1][i]] = true end
end
flush(false)
return 1
