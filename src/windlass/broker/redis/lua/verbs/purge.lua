-- purge: cancel waiting jobs of a queue, or remove finished ones.
--
-- ARGV[2]  queue, state, limit
-- Returns  {how many, more}
-- Writes   as cancel, or as discard
-- Cost     O((limit + 1,000) · log n); of a fifo, at most 10,000 entries are looked at
-- include: write, gathering
local name, state, limit = unpack(decode(ARGV[2]))
local q = queues.get(name)
if not q then return {0, 0} end
local found, cut = gathering.all(q, state, limit)
table.sort(found, function(one, other) return jobs.get(one).arrival < jobs.get(other).arrival end)
for i = #found, limit + 1, -1 do
  found[i] = nil
  cut = true
end
local purged = 0
for i = 1, #found do
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
return {purged, cut and 1 or 0}
