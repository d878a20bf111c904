-- flows: those that have an unfinished job, by name.
--
-- ARGV[2]  the flow to go on behind or "", limit
-- Returns  per flow: name, something of it moves, is held, is dead; one more than the limit if there is
-- Cost     O(limit · log n)
-- include: context
local after, limit = unpack(decode(ARGV[2]))
local out, shown = {}, 0

local function has(prefix) return zfirst(LINK, prefix) and 1 or 0 end

while shown <= limit do
  local first = zfirst(LINK, 'U', after ~= '' and 'U' .. after .. NUL .. LAST or nil)
  if not first then break end
  after = string.match(first, '^U(%Z*)')
  local prefix = 'U' .. after .. NUL
  local row = {after, has(prefix .. 'm'), has(prefix .. 'h'), has('V' .. after .. NUL)}
  for k = 1, 4 do out[#out + 1] = row[k] end
  shown = shown + 1
end
return out
