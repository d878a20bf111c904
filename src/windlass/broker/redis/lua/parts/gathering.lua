-- What a purge may take: jobs of a queue in a state, somewhat more of them than it wants. At most LOOK entries of each
-- structure are looked at, and each call begins behind what calls before it found to be of no use: fifos forget their
-- first entries that count no more (`fifos.first`), and cursors say where to go on.
--
-- SET  U queue: the lane behind which the next purge looks for ready jobs
-- module: gathering
-- include: accept, pruning
local LOOK = 2000
local found, looked = {}, 0

local function gather(z, prefix)
  local members = zpage(z, prefix, LOOK - #found)
  for i = 1, #members do found[#found + 1] = sub(members[i], -16) end
end

local function gather_fifo(owner) -- a queue's own, or a lane's
  local q = owner.queue or owner
  q.ahead = max(q.ahead, owner.per_chunk)
  for band in pairs(fifos.of(owner)) do
    if looked < LOOK and fifos.first(owner, band) then
      looked = looked + fifos.each(owner, band, LOOK - looked, function(j)
        if j then found[#found + 1] = j.id end
      end)
    end
  end
end

local function gather_lanes(q)
  local cursor = hget(SET, 'U' .. q.name)
  local names, stop, nothing = queues.lane_names(q, LOOK, cursor or nil), cursor, true
  queues.load_lanes(q, names)
  for i = 1, #names do
    if looked < LOOK then
      local before = #found
      if names[i] ~= '' then gather_fifo(queues.lane(q, names[i])) end
      nothing = nothing and #found == before
      if nothing then stop = names[i] end
    end
  end
  if nothing and #names < LOOK then stop = false end -- the last of them: begin anew
  if stop ~= cursor then hset(SET, 'U' .. q.name, stop) end
end

local function gather_waiting(q, state)
  if state == $State.BLOCKED then
    gather(READY, 'B' .. q.pre)
  elseif state == $State.SCHEDULED then
    gather(TIME, 'D' .. q.pre)
    gather(TIME, 'd' .. q.pre)
  else
    gather(READY, 'L' .. q.pre)
    gather(READY, 'S' .. q.pre)
    looked = #found
    gather_fifo(q)
    if q.laned then gather_lanes(q) end
  end
end

local function gather_finished(q, state)
  if state == $State.DEAD then
    gather(TIME, 'k' .. q.pre .. 'd')
    gather(TIME, 'p' .. q.pre .. 'd')
    return
  end
  pruning.examine_parents(q) -- some of them may go, too
  for _, class in ipairs(state == $State.DONE and {'n', 'r'} or {'c'}) do gather(TIME, 'k' .. q.pre .. class) end
end

local function left_in(q, state) -- how many jobs there are
  local all, n = call('HGETALL', COUNT.k), 0
  for i = 1, #all, 2 do
    if sub(all[i], 1, #q.pre) == q.pre and sub(all[i], -1) == tostring(state) then n = n + all[i + 1] end
  end
  return n
end

function gathering.all(q, state, limit) -- candidates, and whether there are more than a call takes
  local waiting = jobs.is_waiting(state)
  if waiting then gather_waiting(q, state) else gather_finished(q, state) end
  jobs.load(found)
  if waiting or state == $State.DEAD then return found, left_in(q, state) > min(#found, limit) end
  return found, #found > limit or hget(SET, 'P' .. q.name)
end
