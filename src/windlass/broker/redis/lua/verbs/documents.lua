-- documents: of a kind, in the order of their subjects.
--
-- ARGV[2]  kind, subject to go on behind (name NUL lane) or false, limit
-- Returns  per document: name NUL lane, record, declared, override
-- Cost     O(limit)
-- include: context
local kind, after, limit = unpack(decode(ARGV[2]))
local prefix = 'D' .. kind .. NUL
local members = zpage(NAMES, prefix, limit, after and prefix .. after or nil)
local out = {}
for i = 1, #members do
  local at = sub(members[i], 2)
  out[#out + 1] = sub(members[i], #prefix + 1)
  local got = call('HMGET', SET.k, 'D' .. at, 'd' .. at, 'o' .. at)
  for k = 1, 3 do out[#out + 1] = got[k] end
end
return out
