-- Order: where a ready job is filed, and which job is next (core/order.py says why).
--
-- READY  L queue NUL lane NUL band number job: ready jobs that are not in a fifo · S queue NUL number job: suspects
--        Q queue NUL lane NUL number job: everything unfinished and not blocked, in queues with `sequence`
-- RING   R queue NUL band due lane: lanes with something to hand out · W queue NUL wake lane: lanes without a token
-- LANE   t queue NUL band: a ring: 1 time, 2 lanes in it, 3 empty since or false, 4 generation
--
-- A queue that never had a lane keeps no rings: its order is its fifo, and L of the lane "".
-- module: order
-- include: fifos
local IN_FIFO, IN_ORDER, SUSPECT = $IN_FIFO, $IN_ORDER, $SUSPECT
local RINGS, RINGS_CHANGED, ARMED = {}, {}, {}

function order.arm(q) ARMED[q.name] = true end -- somebody is to be woken (see wakes.lua)
function order.armed() return ARMED end

-- what a job of a sequence waits for: everything of its lane that came before it

local function in_order_name(q, j) return 'L' .. q.pre .. j.kind.lane .. NUL .. band_bytes(j.band) .. bytes7(j.seq) .. j.id end
local function line_name(q, j) return 'Q' .. q.pre .. j.kind.lane .. NUL .. bytes7(j.seq) .. j.id end
local function suspect_name(q, j) return 'S' .. q.pre .. bytes7(j.seq) .. j.id end

function order.head_of_line(q, lane)
  local m = zfirst(READY, 'Q' .. q.pre .. lane .. NUL)
  return m and jobs.get(sub(m, -16)) or nil
end

local function runnable_head(q, lane)
  local j = order.head_of_line(q, lane)
  return j and j.state == $State.READY and not jobs.is_suspect(j) and j or nil
end

-- rings

function order.ring(q, band)
  local at = q.pre .. band_bytes(band)
  local r = RINGS[at]
  if r == nil then
    local s = hget(LANE, 't' .. at)
    r = s and decode(s) or {0, 0, false, false}
    RINGS[at] = r
  end
  return r
end

function order.ring_changed(q, band) RINGS_CHANGED[q.pre .. band_bytes(band)] = true end

function order.flush()
  for at in pairs(RINGS_CHANGED) do
    local r = RINGS[at]
    hset(LANE, 't' .. at, r[4] and encode(r) or false)
  end
end

local function ring_name(q, l, band, due) return 'R' .. q.pre .. band_bytes(band) .. bytes7(due) .. l.name end

-- A lane in the middle of its turn is not in RING (q.out): a turn of several jobs moves it once.
function order.put_back(q)
  local out = q.out
  if not out then return end
  q.out = false
  if out.seat[3] then zadd(RING, ring_name(q, out.lane, out.band, out.seat[3])) end
end

local function leave_ring(q, l, band, seat)
  if q.out and q.out.seat == seat then
    q.out = false
  else
    zrem(RING, ring_name(q, l, band, seat[3]))
  end
end

local function seat_in(l, band)
  local seat = l.seats[band]
  if not seat then
    seat = {0, 0, false, false}
    l.seats[band] = seat
  end
  return seat
end

local function enter(q, l, band, seat) -- it comes back: with its debt, without credit
  local r = order.ring(q, band)
  if not r[4] then r[4] = number() end
  if seat[4] ~= r[4] then seat[2], seat[4] = r[1], r[4] end -- a clock of before the ring was forgotten counts for nothing
  seat[2] = max(seat[2], r[1])
  seat[3] = seat[2] + rules.stride(queues.lane_weight(l))
  r[2], r[3] = r[2] + 1, false
  zadd(RING, ring_name(q, l, band, seat[3]))
  order.ring_changed(q, band)
  queues.lane_changed(l)
end

local function leave(q, l, band, seat) -- it has nothing to hand out; it keeps its clock
  local r = order.ring(q, band)
  leave_ring(q, l, band, seat)
  seat[3] = false
  r[2] = r[2] - 1
  if r[2] == 0 then r[3] = NOW end
  order.ring_changed(q, band)
  queues.lane_changed(l)
end

local function set_wake(q, l) -- when it has a token again
  if not l.bucket and not l.wake then return end
  local wake = false
  local wait = queues.token_in(l.bucket, queues.lane_rate(q, l))
  if wait > 0 and (l.suspects > 0 or queues.lane_ready(l) > 0) then wake = NOW + wait end
  if wake == l.wake then return end
  if l.wake then zrem(RING, 'W' .. q.pre .. bytes7(l.wake) .. l.name) end
  if wake then zadd(RING, 'W' .. q.pre .. bytes7(wake) .. l.name) end
  l.wake = wake
  queues.lane_changed(l)
end

function order.refresh(q, l) -- let a lane enter and leave rings, as it now has something to hand out or not
  if not q.laned then return end
  local open, sequence = not queues.parked(q, l), q.policy.sequence
  for band, seat in pairs(l.seats) do
    local wanted = open and seat[1] > 0
    if open and sequence then wanted = runnable_head(q, l.name) ~= nil end
    if wanted and not seat[3] then
      enter(q, l, band, seat)
    elseif not wanted and seat[3] then
      leave(q, l, band, seat)
    end
  end
  set_wake(q, l)
end

function order.refresh_lanes(q) -- settings have changed, or the clock was set back
  if not q.laned then return end
  local names = queues.lane_names(q, 1000)
  queues.load_lanes(q, names)
  for i = 1, #names do order.refresh(q, queues.lane(q, names[i])) end
end

local function ring_band(q, j) return q.policy.one_ring and 0 or j.band end

local function bands_in_order(q, owner) -- the bands of its jobs in L, by jumping from one to the next
  local found, prefix = {}, owner.in_order
  local m = zfirst(READY, prefix)
  while m do
    local band = read_band(m, #prefix + 1)
    found[#found + 1] = band
    m = zfirst(READY, prefix, prefix .. band_bytes(band) .. LAST)
  end
  return found
end

local function bands_of(q, lane) -- every band in which a lane has a ready job, in order
  local owner = fifos.owner(q, lane)
  local found, have = bands_in_order(q, owner), {}
  for i = 1, #found do have[found[i]] = true end
  for band, f in pairs(fifos.of(owner)) do
    if f[5] > 0 and not have[band] then found[#found + 1] = band end
  end
  table.sort(found)
  return found
end

function order.become_laned(q) -- its first lane: from here on it has rings, and counts by lane
  if q.laned then return end
  local l = queues.lane(q, '')
  local bands = bands_of(q, '')
  for i = 1, #bands do
    local f = fifos.of(q)[bands[i]]
    local seat = seat_in(l, q.policy.one_ring and 0 or bands[i])
    seat[1] = seat[1] + (f and f[5] or 0) + zcount(READY, q.in_order .. band_bytes(bands[i]))
  end
  l.suspects, l.running = zcount(READY, 'S' .. q.pre), q.running
  q.laned, q.limited = true, true
  queues.changed(q)
  queues.lane_changed(l)
  order.refresh(q, l)
end

-- where a job stands

function order.set_band(q, j) j.band = rules.band(j.priority, j.due, q.policy.bands, q.policy.age_step) end

local function count_ready(q, j, by)
  if not q.laned then return end
  local l = queues.lane(q, j.kind.lane)
  if j.place == SUSPECT then
    l.suspects = l.suspects + by
  else
    local seat = seat_in(l, ring_band(q, j))
    seat[1] = seat[1] + by
  end
  queues.lane_changed(l)
  return l
end

function order.file(j, keeps_place) -- it has become ready
  local q = j.kind.q
  if not keeps_place then
    order.set_band(q, j)
    if not q.policy.sequence then j.seq = number() end
  end
  if jobs.is_suspect(j) then
    j.place = SUSPECT
    zadd(READY, suspect_name(q, j))
  elseif keeps_place or q.policy.age_step or q.policy.sequence then
    j.place = IN_ORDER
    zadd(READY, in_order_name(q, j))
    fifos.owner(q, j.kind.lane).all_in_fifo = false
  else
    j.place = IN_FIFO
    fifos.push(q, j)
  end
  jobs.touch(j)
  local l = count_ready(q, j, 1)
  if l then order.refresh(q, l) end
  order.arm(q)
end

function order.unfile(j) -- its state is about to change
  local q = j.kind.q
  if j.place == IN_FIFO then
    fifos.pull(q, j)
  elseif j.place == IN_ORDER then
    zrem(READY, in_order_name(q, j))
  else
    zrem(READY, suspect_name(q, j))
  end
  local l = count_ready(q, j, -1)
  j.place = 0
  jobs.touch(j)
  if l then order.refresh(q, l) end
end

function order.line_up(j)
  local q = j.kind.q
  if not q.policy.sequence then return end
  j.seq = number()
  j.rare.line = 1
  jobs.touch(j)
  zadd(READY, line_name(q, j))
  if q.laned then order.refresh(q, queues.lane(q, j.kind.lane)) end
end

function order.leave_line(j)
  if not j.rare.line then return end
  local q = j.kind.q
  zrem(READY, line_name(q, j))
  j.rare.line = nil
  jobs.touch(j)
  if q.laned then order.refresh(q, queues.lane(q, j.kind.lane)) end
  order.wake_if_claimable(q)
end

-- who is next

local function first_in_band(q, owner, band)
  if owner.all_in_fifo == nil then owner.all_in_fifo = not zfirst(READY, owner.in_order) end
  if owner.all_in_fifo then return fifos.first(owner, band) end
  local m = zfirst(READY, owner.in_order .. band_bytes(band))
  local j = m and jobs.get(sub(m, -16)) or nil
  local first = fifos.first(owner, band)
  if first and (not j or first.seq < j.seq) then return first end
  return j
end

local function lowest_band(q, owner)
  if owner.all_in_fifo == nil then owner.all_in_fifo = not zfirst(READY, owner.in_order) end
  local m = not owner.all_in_fifo and zfirst(READY, owner.in_order)
  local low, in_fifo = m and read_band(m, #owner.in_order + 1), fifos.lowest(owner)
  if in_fifo and (not low or in_fifo < low) then low = in_fifo end
  return low, m
end

local function first_of_lane(q, lane, draw)
  if q.policy.sequence then return runnable_head(q, lane) end
  local owner = fifos.owner(q, lane)
  if q.policy.bands then
    local bands = bands_of(q, lane)
    return #bands > 0 and first_in_band(q, owner, rules.choose_band(bands, q.policy.bands, draw)) or nil
  end
  local band, in_order = lowest_band(q, owner)
  if not band then return nil end
  if not in_order then return fifos.first(owner, band) end -- as nearly always
  return first_in_band(q, owner, band)
end

local function ring_bands(q)
  local prefix, found = 'R' .. q.pre, {}
  local m = zfirst(RING, prefix)
  while m do
    local band = read_band(m, #prefix + 1)
    found[#found + 1] = band
    m = zfirst(RING, prefix, prefix .. band_bytes(band) .. LAST)
  end
  return found
end

-- Turns: a claim says how many jobs of a lane come in a row (q.turns.most), and by band it notes the lane that has begun its
-- turn and how many jobs it has had.
local function goes_on(q, band, lane, seat)
  local t = q.turns and q.turns[band]
  return t and t[1] == lane and t[2] < q.turns.most and seat[3]
end

local function lane_in_turn(q, m, band)
  local t = q.turns and q.turns[band]
  if t and goes_on(q, band, t[1], queues.lane(q, t[1]).seats[band]) then return t[1] end
  return sub(m, #q.pre + 15)
end

local function next_in_ring(q, draw) -- the job that comes next by ring, and the lane whose turn it is
  local prefix, out = 'R' .. q.pre, q.out
  local weighted = q.policy.bands and not q.policy.one_ring
  if out and (weighted or not goes_on(q, out.band, out.lane.name, out.seat)) then
    order.put_back(q)
    out = nil
  end
  local m
  if weighted then
    local bands = ring_bands(q)
    m = #bands > 0 and zfirst(RING, prefix .. band_bytes(rules.choose_band(bands, q.policy.bands, draw)))
  else
    m = zfirst(RING, prefix)
  end
  local band, lane
  if out and (not m or out.band <= read_band(m, #prefix + 1)) then
    band, lane = out.band, out.lane.name
  elseif m then
    band = read_band(m, #prefix + 1)
    lane = lane_in_turn(q, m, band)
  else
    return nil
  end
  if q.policy.one_ring then return first_of_lane(q, lane, draw), lane end
  return first_in_band(q, fifos.owner(q, lane), band), lane
end

function order.next_job(q, draw)
  if not queues.is_open(q) then return nil end
  if not q.laned then
    q.only_lane = q.only_lane or queues.lane(q, '')
    if (q.limited or q.only_lane.paused or q.only_lane.bucket) and queues.parked(q, q.only_lane) then return nil end
    return first_of_lane(q, '', draw)
  end
  while true do
    local j, lane = next_in_ring(q, draw)
    if not lane then return nil end
    local l = queues.lane(q, lane)
    if not queues.parked(q, l) then return j end
    order.refresh(q, l) -- a limit of its queue has changed, and this lane was not looked at since
  end
end

function order.next_suspect(q)
  if not queues.is_open(q) then return nil end
  local found = zpage(READY, 'S' .. q.pre, 100)
  for i = 1, #found do
    local j = jobs.get(sub(found[i], -16))
    if not queues.parked(q, queues.lane(q, j.kind.lane)) and (not q.policy.sequence or order.head_of_line(q, j.kind.lane) == j) then
      return j
    end
  end
end

function order.look_ahead(q, count, turn) -- read what a claim of so many jobs will want of a queue with lanes, at once
  if not q.laned then return end
  local prefix = 'R' .. q.pre
  local members, names, lanes = zpage(RING, prefix, 1 + floor(count / turn)), {}, {}
  for i = 1, #members do names[i] = sub(members[i], #prefix + 14) end
  queues.load_lanes(q, names)
  for i = 1, #names do
    if names[i] ~= '' then lanes[#lanes + 1] = queues.lane(q, names[i]) end
  end
  if not q.policy.sequence then fifos.read_ahead(lanes, turn) end
end

-- Queues that may have something to hand out since a lease ended, or a token or a line became free: looked at before the flush.
local FREED = {}
function order.wake_if_claimable(q) FREED[q] = true end
function order.arm_freed()
  for q in pairs(FREED) do
    if not ARMED[q.name] and (order.next_job(q, 0) or order.next_suspect(q)) then order.arm(q) end
    order.put_back(q)
  end
end

-- what a claim takes, and an end gives back

local function rebase(q, band, r) -- once in 2^32 claims of a ring: all its clocks go back, by the same time
  order.put_back(q)
  local base, names = r[1], queues.lane_names(q, 1000000)
  for _, l in queues.lanes_read() do -- those that have no name yet
    if l.queue == q and not l.known then names[#names + 1] = l.name end
  end
  r[1] = 0
  for i = 1, #names do
    local l = queues.lane(q, names[i])
    local seat = l.seats[band]
    if seat then
      seat[2] = max(0, seat[2] - base)
      if seat[3] then
        zrem(RING, ring_name(q, l, band, seat[3]))
        seat[3] = seat[3] - base
        zadd(RING, ring_name(q, l, band, seat[3]))
      end
      queues.lane_changed(l)
    end
  end
end

local function take_turn(q, l, band) -- its clock moves on
  local seat, r = l.seats[band], order.ring(q, band)
  if not (q.out and q.out.seat == seat) then
    order.put_back(q)
    zrem(RING, ring_name(q, l, band, seat[3]))
    q.out = {lane = l, band = band, seat = seat}
  end
  local t = q.turns and q.turns[band]
  if t and t[1] == l.name and t[2] < q.turns.most then
    t[2] = t[2] + 1
  elseif q.turns then
    q.turns[band] = {l.name, 1}
  end
  r[1] = max(r[1], seat[2])
  seat[2] = seat[3]
  seat[3] = seat[2] + rules.stride(queues.lane_weight(l))
  order.ring_changed(q, band)
  if r[1] >= $REBASE_AT then rebase(q, band, r) end
end

function order.occupy(j) -- it is handed out
  local q = j.kind.q
  local limited = q.limited
  q.running = q.running + 1
  queues.changed(q)
  if limited then
    local l = queues.lane(q, j.kind.lane)
    if q.laned and j.place ~= SUSPECT then take_turn(q, l, ring_band(q, j)) end
    if q.laned then l.running = l.running + 1 end
    if q.policy.rate then q.bucket = queues.take_token(q.bucket, q.policy.rate) end
    local rate = queues.lane_rate(q, l)
    if rate then l.bucket = queues.take_token(l.bucket, rate) end
    queues.lane_changed(l)
  end
  order.unfile(j)
end

function order.vacate(j, unstarted) -- its lease has ended
  local q = j.kind.q
  q.running = q.running - 1
  queues.changed(q)
  if not q.limited then return end
  local l = queues.lane(q, j.kind.lane)
  if q.laned then l.running = l.running - 1 end
  if unstarted then -- the token comes back
    local rate = queues.lane_rate(q, l)
    if q.policy.rate and q.bucket then q.bucket = rules.returned(q.bucket, q.policy.rate, NOW, j.claimed) end
    if rate and l.bucket then l.bucket = rules.returned(l.bucket, rate, NOW, j.claimed) end
  end
  queues.lane_changed(l)
  order.refresh(q, l)
  order.wake_if_claimable(q)
end
