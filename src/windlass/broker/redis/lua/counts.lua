-- counts: how many jobs there are, and how long the oldest of each queue has been due.
--
-- Returns  {counts as field and number …, queue and age …, paused queues}
-- Cost     O(queues · tasks · states + 100 ready jobs of each structure of a queue). The age is exact up to so many.
-- include: filing, pruning
local LOOK = 100
local oldest, paused_ones = {}, {}

local function look(name, j)
  if j and j.state == RDY then
    local age = max(0, NOW - j.due)
    if not oldest[name] or age > oldest[name] then oldest[name] = age end
  end
end

local queues = all_queues()
for i = 1, #queues do
  local q = queues[i]
  if q.paused then paused_ones[#paused_ones + 1] = q.name end
  for _, letter in ipairs({'L', 'S'}) do
    local members = zpage(READY, letter .. q.pre, LOOK)
    for k = 1, #members do look(q.name, job(sub(members[k], -16))) end
  end
  for band, f in pairs(fifos(q)) do
    local looked, n = 0, f[1]
    while n <= f[3] and looked < LOOK do
      local s = hget(FIFO, chunk_name(q, band, n)) or ''
      for at = (n == f[1] and f[2] or 0) * ENTRY, #s - ENTRY, ENTRY do
        local j = job(sub(s, at + 8, at + 23))
        if j and j.place == IN_FIFO and j.seq == r7(s, at + 1) then look(q.name, j) end
        looked = looked + 1
      end
      n = n + 1
    end
  end
end
local ages = {}
for name, age in pairs(oldest) do
  ages[#ages + 1] = name
  ages[#ages + 1] = age
end
return {call('HGETALL', COUNT.k), ages, paused_ones}
