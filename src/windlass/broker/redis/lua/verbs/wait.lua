-- wait: take an armed wake of one of the queues, or enter the list of waiters.
--
-- ARGV[2]  queues, channel, number of the waiter
-- Returns  {1, 0} if a wake was armed; else {0, since}, and the call that arms one of these queues publishes the number
-- Writes   set, names
-- Cost     O(queues · log n)
-- include: wakes
local names, channel, waiter = unpack(decode(ARGV[2]))
if #names == 0 then return {0, 0} end
local fields, armed, quiet = {}, {}, {}
for i = 1, #names do fields[i] = 'A' .. names[i] end
local flags, t = call('HMGET', SET.k, unpack(fields)), call('TIME')
local since = t[1] * 1000000 + t[2]
for i = 1, #fields do
  local list = flags[i] == 'A' and armed or (flags[i] ~= 'W' and quiet or nil)
  if list then
    list[#list + 1] = fields[i]
    list[#list + 1] = 'W'
  end
end
call('HDEL', META.k, '-') -- a shrinking write first: from then on a script may grow
if #armed > 0 then
  call('HSET', SET.k, unpack(armed))
  return {1, 0}
end
for i = 1, #names do call('ZADD', NAMES.k, 0, wakes.waiter(names[i], since, channel, waiter)) end
if #quiet > 0 then call('HSET', SET.k, unpack(quiet)) end
return {0, since}
