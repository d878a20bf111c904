-- sessions: by id, those alive and those that ended within the last hour.
--
-- ARGV[2]  id to go on behind, limit
-- Returns  per session: id, info, ended, opened, silent for, leases, memory, cause
-- Cost     O(limit)
-- include: base, clock, session
local a = unpack_(ARGV[2])
local members = zpage(NAMES, 's', a[2], 's' .. a[1])
local out = {}
for i = 1, #members do
  local id = sub(members[i], 2)
  local got = call('HMGET', SESS.k, 'S' .. id, 'I' .. id, 'C' .. id)
  local s = read_session(got[1])
  local cause = got[3] and string.match(got[3], '^%Z*') or ''
  local row = {id, got[2], s[1] and 1 or 0, s[2], s[1] and s[7] or max(0, N.live - s[3]), s[8], s[4], cause}
  for k = 1, 8 do out[#out + 1] = row[k] end
end
return out
