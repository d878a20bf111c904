-- list: heads, in the order of the store; filters are applied to the rows examined, by the adapter.
--
-- ARGV[2]  cursor, rows, ids left over from the page before
-- Returns  {next cursor, id, head …}
-- Cost     O(rows)
-- include: base, clock, jobs
local a = unpack_(ARGV[2])
local out = {'0'}

local function show(ids)
  load_jobs(ids)
  for i = 1, #ids do
    local head = whole(ids[i])
    if head then
      out[#out + 1] = ids[i]
      out[#out + 1] = head
    end
  end
end

show(a[3])
local cursor = a[1]
local looked = #a[3]
while cursor ~= 'end' and looked < a[2] do
  local page = call('HSCAN', HEAD.k, cursor, 'COUNT', a[2] - looked)
  cursor = page[1] == '0' and 'end' or page[1]
  local ids = {}
  for i = 1, #page[2], 2 do
    if page[2][i] ~= '' then -- the sentinel
      ids[#ids + 1] = page[2][i]
      HEAD.v[page[2][i]] = page[2][i + 1]
    end
  end
  show(ids)
  looked = looked + math.max(1, #page[2] / 2)
end
out[1] = cursor
return out
