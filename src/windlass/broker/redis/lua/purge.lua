-- purge: cancel waiting jobs of a queue, or remove finished ones.
--
-- ARGV[2]  queue, state, limit
-- Returns  {how many, more}
-- Writes   as cancel, or as discard
-- Cost     O((limit + 1,000) · log n); of a fifo, at most 10,000 entries are looked at
-- include: flush, accept, gathering
local a = unpack_(ARGV[2])
local q, state, limit = queue(a[1]), a[2], a[3]
if not q then return {0, 0} end
local found, cut = gather_all(q, state, limit)
table.sort(found, function(one, other) return job(one).arrival < job(other).arrival end)
for i = #found, limit + 1, -1 do
  found[i] = nil
  cut = true
end
local purged = 0
for i = 1, #found do
  local j = job(found[i])
  if j and j.state == state then -- the end of one before it may have moved it
    purged = purged + 1
    if is_waiting(state) then cancel_waiting(j, 'purge', 'purged') else drop(j, 'purge') end
  end
end
flush(false)
return {purged, cut and 1 or 0}
