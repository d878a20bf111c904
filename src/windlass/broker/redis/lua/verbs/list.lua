-- list: heads, in the order of the store; filters are applied to the rows examined, by the adapter.
--
-- ARGV[2]  cursor, rows, ids left over from the page before
-- Returns  {next cursor, id, head …}
-- Cost     O(rows)
-- include: context
local cursor, rows, left = unpack(decode(ARGV[2]))
local out = {'0'}
hload(HEAD, left)
for i = 1, #left do
  if HEAD.v[left[i]] then
    out[#out + 1] = left[i]
    out[#out + 1] = HEAD.v[left[i]]
  end
end
local looked = #left
while cursor ~= 'end' and looked < rows do
  local page = call('HSCAN', HEAD.k, cursor, 'COUNT', rows - looked)
  cursor = page[1] == '0' and 'end' or page[1]
  for i = 1, #page[2], 2 do
    if page[2][i] ~= '' then -- the guard
      out[#out + 1] = page[2][i]
      out[#out + 1] = page[2][i + 1]
    end
  end
  looked = looked + math.max(1, #page[2] / 2)
end
out[1] = cursor
return out
