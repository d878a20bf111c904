-- fire: move next_at and enqueue the jobs of the tick, in one step, or do nothing.
--
-- ARGV[2]  name, version, expected next_at, then or false, calls (see calls.lua), missed ticks, unless a job waits,
--          how many fires are kept
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

local kept = hget(SET, '3' .. s.name)
local fires = kept and unpack_(kept) or {}

local function record(jobs, missed) -- a run of fires without a job is one record
  local last = fires[#fires]
  if last and #last[3] == 0 and #jobs == 0 then
    last[2], last[4] = NOW, (last[4] or 0) + missed
  else
    fires[#fires + 1] = {a[3], NOW, jobs, missed}
    if #fires > a[8] then table.remove(fires, 1) end
  end
  s.next_at = a[4]
  save_schedule(s)
  hset(SET, '3' .. s.name, pack(fires))
  flush(true)
end

local function waits_to_start() -- whether a job of these fires does; the newest start last
  for i = #fires, 1, -1 do
    local ids = {}
    for k, id in ipairs(fires[i][3]) do
      ids[k] = string.gsub(id, '..', function(byte) return string.char(tonumber(byte, 16)) end)
    end
    load_jobs(ids)
    for _, id in ipairs(ids) do
      local j = job(id)
      if j and is_waiting(j.state) and not j.x.started and (j.due <= NOW or j.x.hold_key) then return true end
    end
  end
  return false
end

local calls = a[5]
if a[7] and waits_to_start() then
  record({}, a[6] + #calls)
  return {'missed', 1}
end
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
record(jobs, a[6])
return {'fired', receipts}
