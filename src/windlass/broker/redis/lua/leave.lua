-- leave: somebody waits no longer. One who was told and will not act on it lets another be told.
--
-- ARGV[2]  queues, channel, number of the waiter, since when, pass the wake on
-- Returns  1
-- Writes   names; set
-- Cost     O(queues · log n)
-- include: plain
local a, told = unpack_(ARGV[2]), {}
if a[5] then
  for i = 1, #a[1] do
    told[i] = {name = a[1][i], wake = call('HGET', SET, 'A' .. a[1][i])}
    waiters(told[i])
  end
end
call('HDEL', META, '-') -- a shrinking write first: from then on a script may grow
for i = 1, #a[1] do call('ZREM', NAMES, 'w' .. a[1][i] .. NUL .. struct.pack('>I7', a[4]) .. a[2] .. NUL .. a[3]) end
for i = 1, #told do wake(told[i]) end
return 1
