-- purge: cancel waiting jobs of a queue, or remove finished ones.
--
-- ARGV[2]  queue, state, limit
-- Returns  {how many, more}
-- Writes   as cancel, or as discard
-- Cost     O((limit + 2,000) · log n + queues · tasks · states)
-- include: write, gathering
local name, state, limit = unpack(decode(ARGV[2]))
local q = queues.get(name)
if not q then return {0, 0} end
local found, more = gathering.all(q, state, limit)
table.sort(found, function(one, other) return jobs.get(one).arrival < jobs.get(other).arrival end)
local purged = 0
for i = 1, min(#found, limit) do
  local j = jobs.get(found[i])
  if j and j.state == state then -- the end of one before it may have moved it
    purged = purged + 1
    if jobs.is_waiting(state) then
      lifecycle.cancel_waiting(j, $Move.PURGE, $Reason.PURGED)
    else
      lifecycle.remove(j, $Move.PURGE)
    end
  end
end
flush(false)
return {purged, more and 1 or 0}
