-- events: a page of the log after a cursor.
--
-- ARGV[2]  number of the first event wanted (-1: the oldest, -2: after the newest), limit
-- Returns  {number of the first, gap, event …}
-- Cost     O(limit)
-- include: context
local wanted, limit = unpack(decode(ARGV[2]))
if wanted == -2 then return {N.log_end, 0} end
if wanted == -1 then wanted = N.log_first end
local from = max(wanted, N.log_first)
local to = min(from + limit, N.log_end) - 1
local out, fields = {from, wanted < N.log_first and 1 or 0}, {}
for n = from, to do fields[#fields + 1] = n end
if #fields > 0 then
  local got = call('HMGET', LOG.k, unpack(fields))
  for i = 1, #got do out[#out + 1] = got[i] end
end
return out
