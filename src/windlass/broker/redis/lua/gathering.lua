-- What a purge may take: jobs of a queue in a state, somewhat more of them than it wants.
-- include: flush, accept
local found, cut, most, looked = {}, false, 0, 0

local function gather(z, p)
  local members = zpage(z, p, most)
  for i = 1, #members do found[#found + 1] = sub(members[i], -16) end
end

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

local function gather_lanes(q)
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

local function gather_all(q, state, limit) -- candidates, and whether some were left out
  most = limit + 1000 -- the oldest of them go first
  if state == BLOCKED then
    gather(READY, 'B' .. q.pre)
  elseif state == SCHEDULED then
    gather(TIME, 'D' .. q.pre)
    gather(TIME, 'd' .. q.pre)
  elseif state == RDY then
    gather_fifo(q)
    if q.laned then gather_lanes(q) end
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
    local batches = state == DONE and zpage(TIME, 'b' .. q.pre, most) or {}
    for i = 1, #batches do
      if #found < 2 * most then
        local ids = BATCHES.of(r7(batches[i], #batches[i] - 6)).ids
        load_jobs(ids)
        for k = 1, #ids do found[#found + 1] = ids[k] end
      else
        cut = true
      end
    end
  end
  return found, cut
end
