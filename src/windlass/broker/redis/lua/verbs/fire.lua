-- fire: move next_at and enqueue the jobs of the tick, in one step, or do nothing.
--
-- ARGV[2]  name, version, expected next_at, then or false, a packet of calls (see calls.lua), missed ticks, unless a job waits
-- Returns  {status, receipts as enqueue gives them for a group}
-- Writes   as enqueue; set, time
-- Cost     as enqueue
-- include: write, schedules, accept
local name, version, expect, next_at, packet, missed, unless_waiting = unpack(decode(ARGV[2]))
local s = schedules.get(name)
if not s.known then return {$Fire.UNKNOWN, 1} end
if s.paused then return {$Fire.PAUSED, 1} end
if s.version ~= version or s.next_at ~= expect then return {$Fire.RACED, 1} end
if expect > NOW then return {$Fire.NOT_DUE, 1} end

local kept = hget(SET, '3' .. name)
local fires = kept and decode(kept) or {}

local function record(made, ticks) -- a run of fires without a job is one record
  local last = fires[#fires]
  if last and #last[3] == 0 and #made == 0 then
    last[2], last[4] = NOW, (last[4] or 0) + ticks
  else
    fires[#fires + 1] = {expect, NOW, made, ticks}
    if #fires > $FIRES_KEPT then table.remove(fires, 1) end
  end
  s.next_at = next_at
  schedules.save(s)
  hset(SET, '3' .. name, encode(fires))
  flush(true)
end

local function waits_to_start() -- whether a job of these fires does; the newest start last
  for i = #fires, 1, -1 do
    local ids = {}
    for k, id in ipairs(fires[i][3]) do
      ids[k] = string.gsub(id, '..', function(digits) return string.char(tonumber(digits, 16)) end)
    end
    jobs.load(ids)
    for _, id in ipairs(ids) do
      local j = jobs.get(id)
      local waits = j and jobs.is_waiting(j.state) and not j.started
      if waits and (j.due <= NOW or j.rare.hold_key) then return true end
    end
  end
  return false
end

local groups, all = calls.read(packet)
if unless_waiting and waits_to_start() then
  record({}, missed + #all)
  return {$Fire.MISSED, 1}
end
calls.look_up(all)
local refused = calls.refusals(groups[1], false)
if #refused > 0 then return {$Fire.REFUSED, {'refused', unpack(refused)}} end
local receipts, made = accept.all(groups[1]), {}
for i = 1, #all do
  local id = type(receipts[i]) == 'table' and receipts[i][2] or all[i].id
  made[i] = string.gsub(id, '.', function(c) return string.format('%02x', byte(c)) end)
end
record(made, missed)
return {$Fire.FIRED, receipts}
