-- counts: how many jobs there are, and how long the oldest of each queue has been due.
--
-- Returns  {counts as field and number …, queue and age …, paused queues}
-- Cost     O(queues · tasks · states + 100 ready jobs of each structure of a queue and of 100 lanes, 1,000 of them all).
--          The age is exact up to so many.
-- include: order
local LOOK = 100
local oldest, paused_ones = {}, {}

local function look(name, j)
  if j and j.state == $State.READY then oldest[name] = max(oldest[name] or 0, NOW - j.due) end
end

local function look_in_fifos(q, owner) -- a queue's own, or a lane's; how many entries
  local looked = 0
  for band in pairs(fifos.of(owner)) do
    fifos.first(owner, band) -- behind entries that count no more
    looked = looked + fifos.each(owner, band, LOOK, function(j) look(q.name, j) end)
  end
  return looked
end

local all = queues.all()
for i = 1, #all do
  local q = all[i]
  if q.paused then paused_ones[#paused_ones + 1] = q.name end
  for _, letter in ipairs({'L', 'S'}) do
    local members = zpage(READY, letter .. q.pre, LOOK)
    for k = 1, #members do look(q.name, jobs.get(sub(members[k], -16))) end
  end
  look_in_fifos(q, q)
  local names, left = q.laned and queues.lane_names(q, LOOK) or {}, 10 * LOOK
  for k = 1, #names do
    if left > 0 and names[k] ~= '' then left = left - look_in_fifos(q, queues.lane(q, names[k])) end
  end
end
local ages = {}
for name, age in pairs(oldest) do
  ages[#ages + 1] = name
  ages[#ages + 1] = age
end
return {call('HGETALL', COUNT.k), ages, paused_ones}
