-- unhold: held jobs of a key become ready.
--
-- ARGV[2]  hold key, limit
-- Returns  {how many, more}
-- Writes   as promotion: head, time, link, fifo or ready, lane, ring, count, log
-- Cost     O(limit · log n)
-- include: write
local key, limit = unpack(decode(ARGV[2]))
local members = zpage(LINK, 'H' .. key .. NUL, limit + 1)
for i = 1, min(#members, limit) do
  local j = jobs.get(sub(members[i], -16))
  transitions.leave_waiting(j)
  j.due = NOW
  transitions.make(j, $Move.UNHOLD, $State.READY)
  order.file(j)
end
flush(false)
return {min(#members, limit), #members > limit and 1 or 0}
