-- flows: those that have an unfinished job, by name.
--
-- ARGV[2]  the flow to go on behind or "", limit
-- Returns  per flow: name, something of it moves, is held, is dead; one more than the limit if there is
-- Cost     O(limit · log n)
-- include: base, clock, jobs
local after, limit = unpack(unpack_(ARGV[2]))
local out, shown = {}, 0

local function has(p) return #call('ZRANGEBYLEX', LINK.k, '[' .. p, '(' .. p .. LAST, 'LIMIT', 0, 1) end

while shown <= limit do
  local from = after == '' and '[U' or '(U' .. after .. NUL .. LAST
  local first = call('ZRANGEBYLEX', LINK.k, from, '(V', 'LIMIT', 0, 1)[1]
  if not first then break end
  after = string.match(first, '^U(%Z*)')
  local p = 'U' .. after .. NUL
  local row = {after, has(p .. 'm'), has(p .. 'h'), has('V' .. after .. NUL)}
  for k = 1, 4 do out[#out + 1] = row[k] end
  shown = shown + 1
end
return out
