-- documents: of a kind, in the order of their subjects.
--
-- ARGV[2]  kind, subject to go on behind (name NUL lane) or false, limit
-- Returns  per document: name NUL lane, packed record, declared, override
-- Cost     O(limit)
-- include: base, clock
local a = unpack_(ARGV[2])
local p = 'D' .. a[1] .. NUL
local members = zpage(NAMES, p, a[3], a[2] and p .. a[2] or nil)
local out = {}
for i = 1, #members do
  local at = sub(members[i], 2)
  out[#out + 1] = sub(members[i], #p + 1)
  local got = call('HMGET', SET.k, 'D' .. at, 'd' .. at, 'o' .. at)
  for k = 1, 3 do out[#out + 1] = got[k] end
end
return out
