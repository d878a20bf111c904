-- fire: move next_at and enqueue the jobs of the tick, in one step, or do nothing.
--
-- ARGV[2]  name, version, expected next_at, then or false, calls (see calls.lua)
-- Returns  {status, receipts as enqueue gives them for a group}
-- Writes   as enqueue; set, time
-- Cost     as enqueue
-- include: planning, accept
local a = unpack_(ARGV[2])
local s = schedule_named(a[1])
if not s.known then return {'unknown', 1} end
if s.paused then return {'paused', 1} end
if s.version ~= a[2] or s.next_at ~= a[3] then return {'raced', 1} end
if a[3] > NOW then return {'not due', 1} end

local calls = a[5]
look_up(calls)
local refused = refusals(calls, false)
if #refused > 0 then
  table.insert(refused, 1, 'refused')
  return {'refused', refused}
end
local receipts, jobs = accept(calls), {}
for i = 1, #calls do
  local id = type(receipts[i]) == 'table' and receipts[i][2] or calls[i][1]
  jobs[i] = string.gsub(id, '.', function(c) return string.format('%02x', string.byte(c)) end)
end
s.next_at = a[4]
save_schedule(s)
local kept = hget(SET, '3' .. s.name)
local fires = kept and unpack_(kept) or {}
fires[#fires + 1] = {a[3], NOW, jobs}
if #fires > 20 then table.remove(fires, 1) end
hset(SET, '3' .. s.name, pack(fires))
flush(true)
return {'fired', receipts}
