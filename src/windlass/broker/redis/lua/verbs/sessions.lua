-- sessions: by id, those alive and those that ended within the last hour.
--
-- ARGV[2]  id to go on behind, limit
-- Returns  per session: id, info, ended, opened, silent for, leases, memory, cause
-- Cost     O(limit)
-- include: leases
local after, limit = unpack(decode(ARGV[2]))
local members = zpage(NAMES, 's', limit, 's' .. after)
local out = {}
for i = 1, #members do
  local s = leases.session(sub(members[i], 2))
  local got = call('HMGET', SESS.k, 'I' .. s.id, 'C' .. s.id)
  local silent = s.ended and s.silent_for or max(0, N.live - s.seen)
  local cause = got[2] and string.match(got[2], '^%Z*') or ''
  local row = {s.id, got[1], s.ended and 1 or 0, s.opened, silent, s.leases, s.memory, cause}
  for k = 1, 8 do out[#out + 1] = row[k] end
end
return out
