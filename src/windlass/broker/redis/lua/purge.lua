-- purge: cancel waiting jobs of a queue, or remove finished ones.
--
-- ARGV[2]  queue, state, limit
-- Returns  {how many, more}
-- Writes   as cancel, or as discard
-- Cost     O((limit + 2,000) · log n + queues · tasks · states)
-- include: flush, accept, gathering
local a = unpack_(ARGV[2])
local q, state, limit = queue(a[1]), a[2], a[3]
if not q then return {0, 0} end
local found, more = gather_all(q, state, limit)
load_jobs(found)
table.sort(found, function(one, other) return job(one).arrival < job(other).arrival end)
local purged = 0
for i = 1, min(#found, limit) do
  local j = job(found[i])
  if j and j.state == state then -- the end of one before it may have moved it
    purged = purged + 1
    if is_waiting(state) then cancel_waiting(j, 'purge', 'purged') else drop(j, 'purge') end
  end
end
flush(false)
return {purged, more and 1 or 0}
