-- What a purge may take: jobs of a queue in a state, somewhat more of them than it wants. At most LOOK entries of each
-- structure are looked at, and each call begins behind what calls before it found to be of no use: fifos forget their
-- first entries that count no more (`fifo_first`), and cursors say where to go on.
--
-- SET  U queue: the lane behind which the next purge looks for ready jobs
-- include: flush, accept, pruning
local LOOK = 2000
local candidates, examined = {}, 0

local function gather(z, p)
  local members = zpage(z, p, LOOK - #candidates)
  for i = 1, #members do candidates[#candidates + 1] = sub(members[i], -16) end
end

local function gather_chunk(s, from)
  local ids = {}
  for at = from, #s - ENTRY, ENTRY do ids[#ids + 1] = sub(s, at + 8, at + 23) end
  load_jobs(ids)
  for i = 1, #ids do
    local j = job(ids[i])
    local live = j and j.state == RDY and j.place == IN_FIFO and j.seq == r7(s, from + (i - 1) * ENTRY + 1)
    if live then candidates[#candidates + 1] = j.id end
  end
  examined = examined + #ids
end

local function gather_fifo(owner) -- a queue's own, or a lane's
  owner.ahead = PER_CHUNK
  for band, f in pairs(fifos(owner)) do
    if examined < LOOK and fifo_first(owner, band) then
      local n, from = f[1], f[2] * ENTRY
      while n <= f[3] and examined < LOOK do
        gather_chunk(hget(FIFO, chunk_name(owner, band, n)) or '', from)
        n, from = n + 1, 0
      end
    end
  end
end

local function gather_lanes(q)
  local p, cursor = 'L' .. q.pre, hget(SET, 'U' .. q.name)
  local members, names, stop = zpage(NAMES, p, LOOK, cursor or nil), {}, cursor
  for i = 1, #members do names[i] = 'l' .. sub(members[i], 2) end
  hload(LANE, names)
  local nothing = true
  for i = 1, #members do
    if examined < LOOK then
      local before = #candidates
      gather_fifo(lane_of(q, sub(members[i], #p + 1)))
      nothing = nothing and #candidates == before
      if nothing then stop = members[i] end
    end
  end
  if nothing and #members < LOOK then stop = false end -- the last of them: begin anew
  if stop ~= cursor then hset(SET, 'U' .. q.name, stop) end
end

local function gather_batches(q)
  local batches = zpage(TIME, 'b' .. q.pre, LOOK)
  for i = 1, #batches do
    if #candidates < LOOK then
      local ids = BATCHES.of(r7(batches[i], #batches[i] - 6)).ids
      load_jobs(ids)
      for k = 1, #ids do candidates[#candidates + 1] = ids[k] end
    end
  end
end

local function gather_waiting(q, state)
  if state == BLOCKED then
    gather(READY, 'B' .. q.pre)
  elseif state == SCHEDULED then
    gather(TIME, 'D' .. q.pre)
    gather(TIME, 'd' .. q.pre)
  else
    gather(READY, 'L' .. q.pre)
    gather(READY, 'S' .. q.pre)
    examined = #candidates
    gather_fifo(q)
    if q.laned then gather_lanes(q) end
  end
end

local function gather_finished(q, state)
  if state == DEAD then
    gather(TIME, 'k' .. q.pre .. 'd')
    gather(TIME, 'p' .. q.pre .. 'd')
    return
  end
  examine_parents(q) -- some of them may go, too
  for _, class in ipairs(state == DONE and {'n', 'r'} or {'c'}) do gather(TIME, 'k' .. q.pre .. class) end
  if state == DONE then gather_batches(q) end
end

local function left_in(q, state) -- how many jobs there are
  local all, n = call('HGETALL', COUNT.k), 0
  for i = 1, #all, 2 do
    if sub(all[i], 1, #q.pre) == q.pre and sub(all[i], -1) == tostring(state) then n = n + all[i + 1] end
  end
  return n
end

local function gather_all(q, state, limit) -- candidates, and whether there are more than a call takes
  if is_waiting(state) then gather_waiting(q, state) else gather_finished(q, state) end
  if is_waiting(state) or state == DEAD then return candidates, left_in(q, state) > min(#candidates, limit) end
  return candidates, #candidates > limit or hget(SET, 'P' .. q.name)
end
