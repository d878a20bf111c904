-- purge: cancel waiting jobs of a queue, or remove finished ones.
--
-- ARGV[2]  queue, state, limit
-- Returns  {how many, more}
-- Writes   as cancel, or as discard
-- Cost     O((limit + 1,000) · log n); of a fifo, at most 10,000 entries are looked at
-- include: flush, accept
local a = unpack_(ARGV[2])
local q, state, limit = queue(a[1]), a[2], a[3]
if not q then return {0, 0} end
local found, cut = {}, false
local most = limit + 1000 -- candidates: the oldest of them go first

local function gather(z, p)
  local members = zpage(z, p, most)
  for i = 1, #members do found[#found + 1] = sub(members[i], -16) end
end

local looked = 0
local function gather_fifo(owner) -- a queue's own, or a lane's
  for band, f in pairs(fifos(owner)) do
    for n = f[1], f[3] do
      local s = f[5] > 0 and #found < most and looked < 10000 and hget(FIFO, chunk_name(owner, band, n)) or ''
      for at = 0, #s - ENTRY, ENTRY do
        local j = job(sub(s, at + 8, at + 23))
        looked = looked + 1
        cut = cut or looked >= 10000
        local live = j and j.state == RDY and j.place == IN_FIFO and j.seq == r7(s, at + 1)
        if live then found[#found + 1] = j.id end
      end
    end
  end
end

local function gather_lanes()
  local p, after = 'L' .. q.pre, nil
  while #found < most and looked < 10000 do
    local members = zpage(NAMES, p, 1000, after)
    for i = 1, #members do
      if #found < most and looked < 10000 then gather_fifo(lane_of(q, sub(members[i], #p + 1))) else cut = true end
    end
    if #members < 1000 then return end
    after = members[1000]
  end
  cut = true
end

if state == BLOCKED then
  gather(READY, 'B' .. q.pre)
elseif state == SCHEDULED then
  gather(TIME, 'D' .. q.pre)
  gather(TIME, 'd' .. q.pre)
elseif state == RDY then
  gather_fifo(q)
  if q.laned then gather_lanes() end
  gather(READY, 'L' .. q.pre)
  gather(READY, 'S' .. q.pre)
else
  local classes = {[DONE] = {'n', 'r'}, [DEAD] = {'d'}, [CANCELLED] = {'c'}}
  for _, class in ipairs(classes[state]) do
    for _, kind in ipairs({'k', 'p'}) do
      local members = zpage(TIME, kind .. q.pre .. class, most)
      for i = 1, #members do
        local j = job(sub(members[i], -16))
        local free = state == DEAD or kind == 'k' or not is_needed(j)
        if free then found[#found + 1] = j.id end
      end
    end
  end
end

table.sort(found, function(one, other) return job(one).arrival < job(other).arrival end)
for i = #found, limit + 1, -1 do
  found[i] = nil
  cut = true
end
local purged = 0
for i = 1, #found do
  local j = job(found[i])
  if j and j.state == state then -- the end of one before it may have moved it
    purged = purged + 1
    if is_waiting(state) then cancel_waiting(j, 'purge', 'purged') else drop(j, 'purge') end
  end
end
flush(false)
return {purged, cut and 1 or 0}
