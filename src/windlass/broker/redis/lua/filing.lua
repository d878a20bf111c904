-- Filing: where a waiting job stands, and which one is next.
--
-- READY  L queue NUL lane NUL band place job: ready jobs that are not in a fifo · S queue NUL place job: suspects
--        Q queue NUL lane NUL place job: everything unfinished and not blocked, in queues with `sequence`
-- RING   R queue NUL band due lane: lanes with something to hand out · W queue NUL wake lane: lanes without a token
-- A queue that never had a lane keeps no rings: its order is fifo and L of the lane "".
-- include: base, clock, jobs, queues, fifo
local STRIDE = 1048576
local REBASE_AT = 4503599627370496 -- 2^52
local ARMED = {}

local function arm(q) ARMED[q.name] = true end

local function listed_band(p, priority)
  local lowest, found
  for i = 1, #p.bands do
    local listed = p.bands[i][1]
    if not lowest or listed < lowest then lowest = listed end
    if listed <= priority and (not found or listed > found) then found = listed end
  end
  return 0 - (found or lowest)
end

local function band_of(p, priority, due)
  if p.age_step then return floor(due / p.age_step) - priority end
  return p.bands and listed_band(p, priority) or 0 - priority
end

local function choose_band(bands, p, draw) -- bands in order
  if not p.bands then return bands[1] end
  local order, first, share, total = {}, {}, {}, 0
  for i = 1, #bands do
    local listed = listed_band(p, 0 - bands[i])
    if not first[listed] then
      first[listed] = bands[i]
      for k = 1, #p.bands do
        if p.bands[k][1] == 0 - listed then share[listed] = p.bands[k][2] end
      end
      order[#order + 1] = listed
      total = total + share[listed]
    end
  end
  local point = floor(draw * total / 4294967296)
  for i = 1, #order do
    if point < share[order[i]] then return first[order[i]] end
    point = point - share[order[i]]
  end
end

local function order_name(q, j) return 'L' .. q.pre .. j.lane .. NUL .. b6(j.band) .. n7(j.seq) .. j.id end
local function line_name(q, j) return 'Q' .. q.pre .. j.lane .. NUL .. n7(j.seq) .. j.id end
local function suspect_name(q, j) return 'S' .. q.pre .. n7(j.seq) .. j.id end

local function head_of_line(q, lane)
  local m = zfirst(READY, 'Q' .. q.pre .. lane .. NUL)
  return m and job(sub(m, -16)) or nil
end

local function runnable_head(q, lane)
  local j = head_of_line(q, lane)
  return j and j.state == RDY and not is_suspect(j) and j or nil
end

-- rings

local function seat_in(q, l, band) -- the clock of a seat from before its ring was forgotten counts for nothing
  local seat = l.t[band]
  if not seat then
    seat = {0, 0, false, false}
    l.t[band] = seat
  end
  return seat
end

local function enter(q, l, band, seat)
  local r = ring_of(q, band)
  if not r[4] then r[4] = number() end
  if seat[4] ~= r[4] then seat[2], seat[4] = r[1], r[4] end
  seat[2] = max(seat[2], r[1])
  seat[3] = seat[2] + floor(STRIDE / lane_weight(l))
  r[2], r[3] = r[2] + 1, false
  zadd(RING, 'R' .. q.pre .. b6(band) .. n7(seat[3]) .. l.name)
  ring_changed(q, band)
  lane_changed(l)
end

local function leave(q, l, band, seat)
  local r = ring_of(q, band)
  zrem(RING, 'R' .. q.pre .. b6(band) .. n7(seat[3]) .. l.name)
  seat[3] = false
  r[2] = r[2] - 1
  if r[2] == 0 then r[3] = NOW end
  ring_changed(q, band)
  lane_changed(l)
end

local function set_wake(q, l)
  local wake = false
  local wait = token_in(l.b, lane_rate(q, l))
  if wait > 0 and (l.s > 0 or lane_ready(l) > 0) then wake = NOW + wait end
  if wake == l.k then return end
  if l.k then zrem(RING, 'W' .. q.pre .. n7(l.k) .. l.name) end
  if wake then zadd(RING, 'W' .. q.pre .. n7(wake) .. l.name) end
  l.k = wake
  lane_changed(l)
end

local function refresh(q, l) -- let a lane enter and leave rings as it now has, or has not, something to hand out
  if not q.laned then return end
  local open = not parked(q, l)
  for band, seat in pairs(l.t) do
    local wanted = open and seat[1] > 0
    if open and q.p.sequence then wanted = runnable_head(q, l.name) ~= nil end
    if wanted and not seat[3] then
      enter(q, l, band, seat)
    elseif not wanted and seat[3] then
      leave(q, l, band, seat)
    end
  end
  set_wake(q, l)
end

local function refresh_lanes(q) -- settings have changed, or the clock was set back
  if not q.laned then return end
  local p = 'L' .. q.pre
  local members = zpage(NAMES, p, 1000)
  for i = 1, #members do refresh(q, lane_of(q, sub(members[i], #p + 1))) end
end

local function ring_band(q, j) return q.p.one_ring and 0 or j.band end

local function bands_in_order(q, lane) -- the bands of a lane in L, by jumping from one to the next
  local p, found = 'L' .. q.pre .. lane .. NUL, {}
  local m = zfirst(READY, p)
  while m do
    local band = rb6(m, #p + 1)
    found[#found + 1] = band
    m = zfirst(READY, p, p .. b6(band) .. LAST)
  end
  return found
end

local function lane_bands(q, lane) -- every band in which a lane has a ready job, in order
  local found = bands_in_order(q, lane)
  local have = {}
  for i = 1, #found do have[found[i]] = true end
  for band, f in pairs(fifos(fifo_owner(q, lane))) do
    if f[5] > 0 and not have[band] then found[#found + 1] = band end
  end
  table.sort(found)
  return found
end

local function become_laned(q) -- its first lane: from here on it has rings, and counts by lane
  if q.laned then return end
  local l = lane_of(q, '')
  local bands = lane_bands(q, '')
  for i = 1, #bands do
    local f = fifos(q)[bands[i]]
    local seat = seat_in(q, l, q.p.one_ring and 0 or bands[i])
    seat[1] = seat[1] + (f and f[5] or 0) + zcount(READY, 'L' .. q.pre .. NUL .. b6(bands[i]))
  end
  l.s, l.u = zcount(READY, 'S' .. q.pre), q.running
  q.laned = true
  queue_changed(q)
  lane_changed(l)
  refresh(q, l)
end

-- where a job stands

local function set_band(q, j) j.band = band_of(q.p, j.priority, j.due) end

local function file(j, keeps_place)
  local q = queue(j.queue)
  if not keeps_place then
    set_band(q, j)
    if not q.p.sequence then j.seq = number() end
  end
  if is_suspect(j) then
    j.place = SUSPECT
    zadd(READY, suspect_name(q, j))
  elseif keeps_place or q.p.age_step or q.p.sequence then
    j.place = IN_ORDER
    zadd(READY, order_name(q, j))
  else
    j.place = IN_FIFO
    push(q, j)
  end
  touch(j)
  if q.laned then
    local l = lane_of(q, j.lane)
    if j.place == SUSPECT then
      l.s = l.s + 1
    else
      local seat = seat_in(q, l, ring_band(q, j))
      seat[1] = seat[1] + 1
    end
    lane_changed(l)
    refresh(q, l)
  end
  arm(q)
end

local function unfile(j) -- its state is about to change
  local q = queue(j.queue)
  local place = j.place
  if place == IN_FIFO then
    pull(q, j)
  elseif place == IN_ORDER then
    zrem(READY, order_name(q, j))
  else
    zrem(READY, suspect_name(q, j))
  end
  j.place = 0
  touch(j)
  if q.laned then
    local l = lane_of(q, j.lane)
    if place == SUSPECT then
      l.s = l.s - 1
    else
      local seat = seat_in(q, l, ring_band(q, j))
      seat[1] = seat[1] - 1
    end
    lane_changed(l)
    refresh(q, l)
  end
end

local function line_up(j)
  local q = queue(j.queue)
  if not q.p.sequence then return end
  j.seq = number()
  j.x.line = 1
  touch(j)
  zadd(READY, line_name(q, j))
  if q.laned then refresh(q, lane_of(q, j.lane)) end
end

-- who is next

local function first_in_band(q, lane, band)
  local p = 'L' .. q.pre .. lane .. NUL .. b6(band)
  local m = zfirst(READY, p)
  local j = m and job(sub(m, -16)) or nil
  local f = fifo_first(fifo_owner(q, lane), band)
  if f and (not j or f.seq < j.seq) then return f end
  return j
end

local function lowest_band(q, lane)
  local p = 'L' .. q.pre .. lane .. NUL
  local m = zfirst(READY, p)
  local low = m and rb6(m, #p + 1)
  for band, f in pairs(fifos(fifo_owner(q, lane))) do
    if f[5] > 0 and (not low or band < low) then low = band end
  end
  return low
end

local function first_of_lane(q, lane, draw)
  if q.p.sequence then return runnable_head(q, lane) end
  local band
  if q.p.bands then
    local bands = lane_bands(q, lane)
    band = #bands > 0 and choose_band(bands, q.p, draw) or nil
  else
    band = lowest_band(q, lane)
  end
  return band and first_in_band(q, lane, band) or nil
end

local function ring_bands(q)
  local p, found = 'R' .. q.pre, {}
  local m = zfirst(RING, p)
  while m do
    local band = rb6(m, #p + 1)
    found[#found + 1] = band
    m = zfirst(RING, p, p .. b6(band) .. LAST)
  end
  return found
end

-- The lane whose turn it is in a ring, of which m is the first: the one that has begun it in this claim, or the first. A claim
-- says how many jobs a turn is: `q.turns`, with the lane and how many it has had by band.
local function lane_in_turn(q, m, band)
  local t = q.turns and q.turns[band]
  if t and t[2] < q.turns.most and lane_of(q, t[1]).t[band][3] then return t[1] end
  return sub(m, #q.pre + 15)
end

local function next_in_ring(q, draw) -- the job that comes next by ring, and the lane whose turn it is
  local p = 'R' .. q.pre
  local m
  if q.p.bands and not q.p.one_ring then
    local bands = ring_bands(q)
    m = #bands > 0 and zfirst(RING, p .. b6(choose_band(bands, q.p, draw)))
  else
    m = zfirst(RING, p)
  end
  if not m then return nil end
  local band = rb6(m, #p + 1)
  local lane = lane_in_turn(q, m, band)
  if q.p.one_ring then return first_of_lane(q, lane, draw), lane end
  return first_in_band(q, lane, band), lane
end

local function next_job(q, draw)
  if not is_open(q) then return nil end
  if not q.laned then
    if parked(q, lane_of(q, '')) then return nil end
    return first_of_lane(q, '', draw)
  end
  while true do
    local j, lane = next_in_ring(q, draw)
    if not lane then return nil end
    local l = lane_of(q, lane)
    if not parked(q, l) then return j end
    refresh(q, l) -- a limit of its queue has changed, and this lane was not looked at since
  end
end

local function next_suspect(q)
  if not is_open(q) then return nil end
  local found = zpage(READY, 'S' .. q.pre, 100)
  for i = 1, #found do
    local j = job(sub(found[i], -16))
    if not parked(q, lane_of(q, j.lane)) and (not q.p.sequence or head_of_line(q, j.lane) == j) then
      return j
    end
  end
end

local function wake_if_claimable(q)
  if not ARMED[q.name] and (next_job(q, 0) or next_suspect(q)) then arm(q) end
end

local function leave_line(j)
  if not j.x.line then return end
  local q = queue(j.queue)
  zrem(READY, line_name(q, j))
  j.x.line = nil
  touch(j)
  if q.laned then refresh(q, lane_of(q, j.lane)) end
  wake_if_claimable(q)
end

-- what a claim takes, and an end gives back

local function rebase(q, band, r) -- once in 2^32 claims of a ring: all its clocks go back, by the same time
  local p, base = 'L' .. q.pre, r[1]
  local members = zpage(NAMES, p, 1000000)
  for at, l in pairs(LANES) do -- those that have no name yet
    if l.queue == q and not l.known then members[#members + 1] = 'L' .. at end
  end
  r[1] = 0
  for i = 1, #members do
    local l = lane_of(q, sub(members[i], #p + 1))
    local seat = l.t[band]
    if seat then
      seat[2] = max(0, seat[2] - base)
      if seat[3] then
        zrem(RING, 'R' .. q.pre .. b6(band) .. n7(seat[3]) .. l.name)
        seat[3] = seat[3] - base
        zadd(RING, 'R' .. q.pre .. b6(band) .. n7(seat[3]) .. l.name)
      end
      lane_changed(l)
    end
  end
end

local function occupy(j)
  local q = queue(j.queue)
  local limited = is_limited(q)
  local l = limited and lane_of(q, j.lane)
  if q.laned and j.place ~= SUSPECT then
    local band = ring_band(q, j)
    local seat, r = l.t[band], ring_of(q, band)
    zrem(RING, 'R' .. q.pre .. b6(band) .. n7(seat[3]) .. l.name)
    local t = q.turns and q.turns[band]
    if t and t[1] == l.name and t[2] < q.turns.most then
      t[2] = t[2] + 1
    elseif q.turns then -- a turn begins
      q.turns[band] = {l.name, 1}
    end
    r[1] = max(r[1], seat[2])
    seat[2] = seat[3]
    seat[3] = seat[2] + floor(STRIDE / lane_weight(l))
    zadd(RING, 'R' .. q.pre .. b6(band) .. n7(seat[3]) .. l.name)
    ring_changed(q, band)
    if r[1] >= REBASE_AT then rebase(q, band, r) end
  end
  q.running = q.running + 1
  queue_changed(q)
  if limited then
    if q.laned then l.u = l.u + 1 end
    if q.p.rate then q.bucket = taken(q.bucket, q.p.rate) end
    local rate = lane_rate(q, l)
    if rate then l.b = taken(l.b, rate) end
    lane_changed(l)
  end
  unfile(j)
end

local function vacate(j, unstarted)
  local q = queue(j.queue)
  q.running = q.running - 1
  queue_changed(q)
  if not is_limited(q) then return end
  local l = lane_of(q, j.lane)
  if q.laned then l.u = l.u - 1 end
  if unstarted then
    local rate = lane_rate(q, l)
    if q.p.rate and q.bucket then q.bucket = returned(q.bucket, q.p.rate, j.claimed) end
    if rate and l.b then l.b = returned(l.b, rate, j.claimed) end
  end
  lane_changed(l)
  refresh(q, l)
  wake_if_claimable(q)
end
