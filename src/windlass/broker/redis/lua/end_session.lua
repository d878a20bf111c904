-- end_session: a session ends and its leases go back, at most 1,000 a call.
--
-- ARGV[2]  session, kind of cause, cause (text), started (job 16 bytes, fence 7 bytes each)
-- Returns  {known, more, then job and packed transition of each move}
-- Writes   as settle; sess, lease, time
-- Cost     O(leases · log n), at most 1,000
-- include: ending
local a = unpack_(ARGV[2])
local s = session(a[1])
if not s then return {0, 0} end
mark_ended(s, a[2], a[3], a[4])
MOVES = {}
return_leases(s, 1000)
flush(false)
return {1, s[8] > 0 and 1 or 0, unpack(MOVES)}
