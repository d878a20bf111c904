-- end_session: a session ends and its leases go back, a bounded number a call.
--
-- ARGV[2]  session, kind of cause, cause (text), started (job 16 bytes, fence 7 bytes each)
-- Returns  {known, more, then job and transition of each move}
-- Writes   as settle; sess, lease, time
-- Cost     O(leases · log n), at most 1,000
-- include: write, ending
local id, kind, text, started = unpack(decode(ARGV[2]))
local s = leases.session(id)
if not s then return {0, 0} end
ending.mark(s, kind, text, started)
transitions.record()
ending.return_leases(s, $END_LEASES)
flush(false)
return {1, s.leases > 0 and 1 or 0, unpack(transitions.moves())}
