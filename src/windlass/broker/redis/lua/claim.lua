-- claim: hand out jobs; the session gets leases, each with a new fence, each counted as an attempt.
--
-- ARGV[2]  an ask (see handout.lua)
-- Returns  asker (0 alive, 1 lost, 2 outdated), more, next_in or -1, suspects, now, then what `claimed` says of leases
-- Writes   head, fifo, sess, lease, set, count, meta, lane, ring; what the long way does otherwise
-- Cost     O(queues + limit); a plain job is one field and its share of a chunk and of a reply
-- otherwise: claim_any
-- include: plain_claim
local ask = unpack_(ARGV[2])
local s = N and ask[4] and session_of(ask[4])
if not s or s.ended then return otherwise() end
local out, asked = plain_claim(ask, s, {})
if not out then return otherwise() end
save_session(s, ask[4])
if lanes then lanes.save() end
call('HDEL', META, '-') -- a shrinking write first: from then on a script may grow
write()
if lanes then lanes.write() end
if out.reply then call('ZADD', LEASE, 0, out.reply) end
for i = 1, #asked do
  if asked[i].armed then wake(asked[i]) end
end
return out
