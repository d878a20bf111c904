-- lanes: of a queue, those that there is something to say of, by name.
--
-- ARGV[2]  queue, lane to go on behind (with a leading ">") or "", limit
-- Returns  {where to go on or "", then per lane: name, weight, ready, running, lag, concurrency or -1, tokens or -1, parked or "", paused};
--          one more than the limit if there is
-- Cost     O(limit); at most LOOK lanes are looked at
-- include: handout
local a = unpack_(ARGV[2])
local q = queue(a[1])
if not q then return {''} end
local LOOK = 2000
local out, shown, looked = {''}, 0, 0

local function lag(l)
  local most = 0
  for band, seat in pairs(l.t) do
    local r = ring_of(q, band)
    if r[4] and seat[4] == r[4] then most = max(most, seat[2] - r[1]) end
  end
  return most
end

local function show(l, ready, running)
  if ready == 0 and running == 0 and not l.p and not l.d then return end
  local rate, most, tokens = lane_rate(q, l), lane_concurrency(q, l), -1
  if rate then
    local level = l.b and refilled(l.b, rate) or rate[4] * rate[2]
    tokens = floor_div(level, rate[2])
  end
  local row = {l.name, lane_weight(l), ready, running, lag(l), most or -1, tokens,
    ready > 0 and parked(q, l) or '', l.p and 1 or 0}
  for k = 1, 9 do out[#out + 1] = row[k] end
  shown = shown + 1
end

if not q.laned and a[2] == '' then -- a queue without lanes counts for its only one
  local ready = zcount(READY, 'L' .. q.pre .. NUL) + zcount(READY, 'S' .. q.pre)
  for _, f in pairs(fifos(q)) do ready = ready + f[5] end
  show(lane_of(q, ''), ready, q.running)
end
local p = 'L' .. q.pre
local after = a[2] ~= '' and p .. sub(a[2], 2) or nil
while shown <= a[3] do
  if looked >= LOOK then
    out[1] = '>' .. sub(after, #p + 1)
    break
  end
  local members, names = zpage(NAMES, p, a[3] + 1, after), {}
  if #members == 0 then break end
  for i = 1, #members do names[i] = 'l' .. sub(members[i], 2) end
  hload(LANE, names)
  for i = 1, #members do
    local l = lane_of(q, sub(members[i], #p + 1))
    if shown <= a[3] and (q.laned or l.name ~= '') then show(l, lane_ready(l) + l.s, lane_running(q, l)) end
  end
  looked, after = looked + #members, members[#members]
  if #members <= a[3] then break end
end
return out
