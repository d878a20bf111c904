-- unhold: held jobs of a key become ready.
--
-- ARGV[2]  hold key, limit
-- Returns  {how many, more}
-- Writes   as promotion: head, time, link, fifo or ready, lane, ring, count, log
-- Cost     O(limit · log n)
-- include: flush
local a = unpack_(ARGV[2])
local members = zpage(LINK, 'H' .. a[1] .. NUL, a[2] + 1)
for i = 1, min(#members, a[2]) do
  local j = job(sub(members[i], -16))
  leave_waiting(j)
  j.due = NOW
  transition(j, 'unhold', RDY)
  file(j)
end
flush(false)
return {min(#members, a[2]), #members > a[2] and 1 or 0}
