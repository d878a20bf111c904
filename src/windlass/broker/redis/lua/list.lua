-- list: heads, the newest first; filters are applied to the rows examined, by the adapter.
--
-- ARGV[2]  the arrival before which to go on or false, rows, a flow or ""
-- Returns  {id, head …}
-- Cost     O(rows · log n)
-- include: base, clock, jobs
local before, rows, flow = unpack(unpack_(ARGV[2]))
local ids = {}
if flow == '' then
  ids = call('ZREVRANGEBYSCORE', HEAD.arrived, before and '(' .. string.format('%.0f', before) or '+inf', 0, 'LIMIT', 0, rows)
else
  local p = 'W' .. flow .. NUL
  local found = call('ZREVRANGEBYLEX', LINK.k, '(' .. p .. (before and n7(before) or LAST), '[' .. p, 'LIMIT', 0, rows)
  for i = 1, #found do ids[i] = sub(found[i], -16) end
end
load_jobs(ids)
local out = {}
for i = 1, #ids do
  out[2 * i - 1], out[2 * i] = ids[i], whole(ids[i])
end
return out
