-- lanes: of a queue, those that there is something to say of, by name.
--
-- ARGV[2]  queue, lane to go on behind (with a leading ">") or "", limit
-- Returns  {where to go on or "", then per lane: name, weight, ready, running, lag, concurrency or -1, tokens or -1, parked or "", paused};
--          one more than the limit if there is
-- Cost     O(limit); at most 2,000 lanes are looked at
-- include: order
local name, cursor, limit = unpack(decode(ARGV[2]))
local q = queues.get(name)
if not q then return {''} end
local LOOK = 2000
local out, shown, looked = {''}, 0, 0

local function lag(l)
  local most = 0
  for band, seat in pairs(l.seats) do
    local r = order.ring(q, band)
    if r[4] and seat[4] == r[4] then most = max(most, seat[2] - r[1]) end
  end
  return most
end

local function show(l, ready, running)
  if ready == 0 and running == 0 and not l.paused and not l.document then return end
  local rate, most, tokens = queues.lane_rate(q, l), queues.lane_concurrency(q, l), -1
  if rate then tokens = rules.tokens(l.bucket or rules.full(rate, NOW), rate, NOW) end
  local row = {l.name, queues.lane_weight(l), ready, running, lag(l), most or -1, tokens,
    ready > 0 and queues.parked(q, l) or '', l.paused and 1 or 0}
  for k = 1, 9 do out[#out + 1] = row[k] end
  shown = shown + 1
end

if not q.laned and cursor == '' then -- a queue without lanes counts for its only one
  local ready = zcount(READY, q.in_order) + zcount(READY, 'S' .. q.pre)
  for _, f in pairs(fifos.of(q)) do ready = ready + f[5] end
  show(queues.lane(q, ''), ready, q.running)
end
local after = cursor ~= '' and sub(cursor, 2) or nil
while shown <= limit do
  if looked >= LOOK then
    out[1] = '>' .. after
    break
  end
  local names = queues.lane_names(q, limit + 1, after)
  if #names == 0 then break end
  queues.load_lanes(q, names)
  for i = 1, #names do
    local l = queues.lane(q, names[i])
    if shown <= limit and (q.laned or l.name ~= '') then
      show(l, queues.lane_ready(l) + l.suspects, queues.lane_running(q, l))
    end
  end
  looked, after = looked + #names, names[#names]
  if #names <= limit then break end
end
return out
