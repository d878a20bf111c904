-- list: heads, the newest first; filters are applied to the rows examined, by the adapter.
--
-- ARGV[2]  the arrival before which to go on or false, rows, a flow or ""
-- Returns  {id, head …}
-- Cost     O(rows · log n)
-- include: context
local before, rows, flow = unpack(decode(ARGV[2]))
local ids = {}
if flow == '' then
  local newest = before and '(' .. string.format('%.0f', before) or '+inf'
  ids = call('ZREVRANGEBYSCORE', ARRIVED, newest, 0, 'LIMIT', 0, rows)
else
  local prefix = 'W' .. flow .. NUL
  local newest = '(' .. prefix .. (before and bytes7(before) or LAST)
  local members = call('ZREVRANGEBYLEX', LINK.k, newest, '[' .. prefix, 'LIMIT', 0, rows)
  for i = 1, #members do ids[i] = sub(members[i], -16) end
end
hload(HEAD, ids)
local out = {}
for i = 1, #ids do out[2 * i - 1], out[2 * i] = ids[i], hget(HEAD, ids[i]) end
return out
