-- schedules: by name, with the store's time.
--
-- ARGV[2]  name to go on behind or "", limit
-- Returns  now, then per schedule: name, record, declared, override, fires; one more than the limit if there is
-- Cost     O(limit)
-- include: context
local after, limit = unpack(decode(ARGV[2]))
local members = zpage(NAMES, 'S', limit + 1, after ~= '' and 'S' .. after or nil)
local out = {NOW}
for i = 1, #members do
  local name = sub(members[i], 2)
  out[#out + 1] = name
  local got = call('HMGET', SET.k, 'S' .. name, '1' .. name, '2' .. name, '3' .. name)
  for k = 1, 4 do out[#out + 1] = got[k] end
end
return out
