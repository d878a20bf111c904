-- fire: move next_at and enqueue the jobs of the tick, in one step, or do nothing.
--
-- ARGV[2]  name, version, expected next_at, then or false, a packet of calls (see calls.lua)
-- Returns  {status, receipts as enqueue gives them for a group}
-- Writes   as enqueue; set, time
-- Cost     as enqueue
-- include: write, schedules, accept
local name, version, expect, next_at, packet = unpack(decode(ARGV[2]))
local s = schedules.get(name)
if not s.known then return {$Fire.UNKNOWN, 1} end
if s.paused then return {$Fire.PAUSED, 1} end
if s.version ~= version or s.next_at ~= expect then return {$Fire.RACED, 1} end
if expect > NOW then return {$Fire.NOT_DUE, 1} end

local groups, all = calls.read(packet)
calls.look_up(all)
local refused = calls.refusals(groups[1], false)
if #refused > 0 then return {$Fire.REFUSED, {'refused', unpack(refused)}} end
local receipts, made = accept.all(groups[1]), {}
for i = 1, #all do
  local id = type(receipts[i]) == 'table' and receipts[i][2] or all[i].id
  made[i] = string.gsub(id, '.', function(c) return string.format('%02x', byte(c)) end)
end
s.next_at = next_at
schedules.save(s)
local kept = hget(SET, '3' .. s.name)
local fires = kept and decode(kept) or {}
fires[#fires + 1] = {expect, NOW, made}
if #fires > $FIRES_KEPT then table.remove(fires, 1) end
hset(SET, '3' .. s.name, encode(fires))
flush(true)
return {$Fire.FIRED, receipts}
