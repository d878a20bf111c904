-- What a purge may take: jobs of a queue in a state, somewhat more of them than it wants.
-- module: gathering
-- include: accept
local LOOK = 10000 -- entries of fifos that one purge looks at
local CLASSES = {[$State.DONE] = {'n', 'r'}, [$State.DEAD] = {'d'}, [$State.CANCELLED] = {'c'}}
local found, cut, most, looked = {}, false, 0, 0

local function gather(z, prefix)
  local members = zpage(z, prefix, most)
  for i = 1, #members do found[#found + 1] = sub(members[i], -16) end
end

local function gather_fifo(owner) -- a queue's own, or a lane's
  for band in pairs(fifos.of(owner)) do
    if #found >= most or looked >= LOOK then
      cut = true
      return
    end
    looked = looked + fifos.each(owner, band, LOOK - looked, function(j)
      if j then found[#found + 1] = j.id end
    end)
    cut = cut or looked >= LOOK
  end
end

local function gather_lanes(q)
  local after = nil
  while #found < most and looked < LOOK do
    local names = queues.lane_names(q, 1000, after)
    for i = 1, #names do gather_fifo(queues.lane(q, names[i])) end
    if #names < 1000 then return end
    after = names[1000]
  end
  cut = true
end

local function gather_finished(q, state)
  for _, class in ipairs(CLASSES[state]) do
    for _, kind in ipairs({'k', 'p'}) do
      local members, ids = zpage(TIME, kind .. q.pre .. class, most), {}
      for i = 1, #members do ids[i] = sub(members[i], -16) end
      jobs.load(ids)
      for i = 1, #ids do
        local free = state == $State.DEAD or kind == 'k' or not flows.is_needed(jobs.get(ids[i]))
        if free then found[#found + 1] = ids[i] end
      end
    end
  end
end

function gathering.all(q, state, limit) -- candidates, and whether some were left out
  most = limit + 1000 -- the oldest of them go first
  if state == $State.BLOCKED then
    gather(READY, 'B' .. q.pre)
  elseif state == $State.SCHEDULED then
    gather(TIME, 'D' .. q.pre)
    gather(TIME, 'd' .. q.pre)
  elseif state == $State.READY then
    gather_fifo(q)
    if q.laned then gather_lanes(q) end
    gather(READY, 'L' .. q.pre)
    gather(READY, 'S' .. q.pre)
  else
    gather_finished(q, state)
  end
  jobs.load(found)
  return found, cut
end
