-- leave: a caller waits no longer. If it was told and will not act on it, another is told.
--
-- ARGV[2]  queues, channel, number of the waiter, since when, pass the wake on
-- Returns  1
-- Writes   names; set
-- Cost     O(queues · log n)
-- include: wakes
local names, channel, waiter, since, pass_on = unpack(decode(ARGV[2]))
local armed = {}
for i = 1, #names do
  names[i], armed[names[i]] = wakes.waiter(names[i], since, channel, waiter), pass_on or nil
  zrem(NAMES, names[i])
end
local chosen = wakes.chosen(armed)
call('HDEL', META.k, '-') -- a shrinking write first: from then on a script may grow
if #names > 0 then call('ZREM', NAMES.k, unpack(names)) end
wakes.ring(chosen)
return 1
