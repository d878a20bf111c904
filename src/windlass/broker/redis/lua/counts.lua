-- counts: how many jobs there are, and how long the oldest of each queue has been due.
--
-- Returns  {counts as field and number …, queue and age …, paused queues}
-- Cost     O(queues · tasks · states + 100 ready jobs of each structure of a queue and of 100 lanes, 1,000 of them all). The age is exact up to so many.
-- include: filing, pruning
local LOOK = 100
local oldest, paused_ones = {}, {}

local function look(name, j)
  if j and j.state == RDY then
    local age = max(0, NOW - j.due)
    if not oldest[name] or age > oldest[name] then oldest[name] = age end
  end
end

local function look_in_fifos(q, owner) -- a queue's own, or a lane's; how many entries
  local all = 0
  for band, f in pairs(fifos(owner)) do
    fifo_first(owner, band)
    local looked, n = 0, f[1]
    while n <= f[3] and looked < LOOK do
      local s = hget(FIFO, chunk_name(owner, band, n)) or ''
      for at = (n == f[1] and f[2] or 0) * ENTRY, #s - ENTRY, ENTRY do
        local j = job(sub(s, at + 8, at + 23))
        if j and j.place == IN_FIFO and j.seq == r7(s, at + 1) then look(q.name, j) end
        looked = looked + 1
      end
      n = n + 1
    end
    all = all + looked
  end
  return all
end

local queues = all_queues()
for i = 1, #queues do
  local q = queues[i]
  if q.paused then paused_ones[#paused_ones + 1] = q.name end
  for _, letter in ipairs({'L', 'S'}) do
    local members = zpage(READY, letter .. q.pre, LOOK)
    for k = 1, #members do look(q.name, job(sub(members[k], -16))) end
  end
  look_in_fifos(q, q)
  local p = 'L' .. q.pre
  local lanes, left = q.laned and zpage(NAMES, p, LOOK) or {}, 10 * LOOK
  for k = 1, #lanes do
    if left > 0 then left = left - look_in_fifos(q, lane_of(q, sub(lanes[k], #p + 1))) end
  end
end
local ages = {}
for name, age in pairs(oldest) do
  ages[#ages + 1] = name
  ages[#ages + 1] = age
end
return {call('HGETALL', COUNT.k), ages, paused_ones}
