-- offsets: by the names of their sources.
--
-- ARGV[2]  name to go on behind, limit
-- Returns  per source: name, record (see take_plain.lua)
-- Cost     O(limit)
-- include: context
local after, limit = unpack(decode(ARGV[2]))
local members = zpage(NAMES, 'O', limit, 'O' .. after)
hload(SET, members)
local out = {}
for i = 1, #members do
  out[#out + 1] = sub(members[i], 2)
  out[#out + 1] = hget(SET, members[i])
end
return out
