-- claim: hand out jobs; the session gets leases, each with a new fence, each counted as an attempt.
--
-- ARGV[2]  an ask (see handout.lua)
-- Returns  asker (0 alive, 1 lost, 2 outdated), more, next_in or -1, suspects, now, then leases (see handout.lua)
-- Writes   head, fifo or ready, sess, lease or time, set, count, meta; lane, ring, gone, past, link, log as needed
-- Cost     O(queues + limit · log n); at most 100 promoted, 1,000 lanes unparked, 1,000 dead entries passed over
-- include: write, handout
local claimed = handout.claim(decode(ARGV[2]))
flush(false)
return handout.answer(claimed)
