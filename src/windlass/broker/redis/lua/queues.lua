-- Queues and lanes: the policy in force, and what changes with every claim.
--
-- SET   Q queue: policy (map, see settings.lua) · R queue: paused, laned (a byte each), running (4), jobs kept in
--       batches (6), bucket if any · T task: it was timed · A queue: its wake (A armed, W somebody may wait)
-- LANE  l queue NUL lane: a lane's record · t queue NUL band: a ring's
-- FIFO  c queue: by band, the chunks of its fifo · queue NUL band number, NUL queue NUL lane NUL band number: chunks
local QUEUES, LANES, RINGS, RING_LIST = {}, {}, {}, {}

local function queue(name)
  local q = QUEUES[name]
  if q ~= nil then return q end
  hload(SET, {'Q' .. name, 'R' .. name})
  local p, s = hget(SET, 'Q' .. name), hget(SET, 'R' .. name)
  if not p then
    q = false
  else
    q = {name = name, p = unpack_(p), pre = name .. NUL}
    local paused, laned, running, kept = 0, 0, 0, 0
    if s then paused, laned, running, kept = struct.unpack('>BBI4I6', s) end
    q.paused, q.laned, q.running, q.kept = paused == 1, laned == 1, running, kept
    q.bucket = s and #s > 12 and unpack_(sub(s, 13)) or false
  end
  QUEUES[name] = q
  return q
end

local function write_running(q)
  return struct.pack('>BBI4I6', q.paused and 1 or 0, q.laned and 1 or 0, q.running, q.kept) .. (q.bucket and pack(q.bucket) or '')
end

local function queue_changed(q) q.touched = true end

-- A lane: s suspects, u running, p paused, b bucket, k wake, d what its document says, t seats by band.
-- A seat: 1 ready jobs, 2 clock, 3 due or false, 4 generation of its ring. f: its fifos by band (see fifo.lua).
-- Most lanes have a seat in one ring, or none (ready and generation 0), and nothing else that would have to be said of
-- them. Their record is bytes: 1, then running (4), band (6), ready (4), clock, due or 0, generation or 0 (8 each), and
-- the fifo (4, 1, 4, 1, 4).
local SIMPLE_LANE = '>BI4I6I4I8I8I8I4BI4BI4'

local function read_lane(s)
  if string.byte(s) ~= 1 then
    local l = unpack_(s)
    l.fifo, l.f = l.f or {}, nil
    return l
  end
  local _, running, band, ready, clock, due, born, f1, f2, f3, f4, f5 = struct.unpack(SIMPLE_LANE, s)
  band = band - BAND_ZERO
  local l = {s = 0, u = running, p = false, b = false, k = false, d = false, t = {}, fifo = {}}
  if ready > 0 or born > 0 then l.t[band] = {ready, clock, due > 0 and due, born > 0 and born} end
  if f1 > 0 then l.fifo[band] = {f1, f2, f3, f4, f5} end
  return l
end

local function write_lane(l)
  local band, seat = next(l.t)
  local in_band, f = next(l.fifo)
  if not band then band, seat = in_band or 0, {0, 0, false, false} elseif next(l.t, band) then seat = nil end
  if seat and l.s == 0 and not l.p and not l.b and not l.k and not l.d and
      (not in_band or (in_band == band and not next(l.fifo, band))) then
    f = f or {0, 0, 0, 0, 0}
    return struct.pack(SIMPLE_LANE, 1, l.u, band + BAND_ZERO, seat[1], seat[2], seat[3] or 0, seat[4] or 0, f[1], f[2], f[3],
      f[4], f[5])
  end
  return pack({s = l.s, u = l.u, p = l.p, b = l.b, k = l.k, d = l.d, t = l.t, f = in_band and l.fifo or nil})
end

local function lane_of(q, name)
  local at = q.pre .. name
  local l = LANES[at]
  if l == nil then
    local s = hget(LANE, 'l' .. at)
    l = s and read_lane(s) or {s = 0, u = 0, p = false, b = false, k = false, d = false, t = {}, fifo = {}}
    l.known = s and true or false
    l.name, l.queue, l.chunks = name, q, NUL .. at .. NUL
    LANES[at] = l
  end
  return l
end

local function lane_changed(l) l.touched = true end

local function lane_ready(l)
  local n = 0
  for _, seat in pairs(l.t) do n = n + seat[1] end
  return n
end

local function lane_empty(l)
  return l.s == 0 and l.u == 0 and not l.p and not l.b and not l.d and next(l.t) == nil and next(l.fifo) == nil
end

-- A ring: 1 time, 2 lanes in it, 3 empty since or false, 4 generation.
local function ring_of(q, band)
  local at = q.pre .. b6(band)
  local r = RINGS[at]
  if r == nil then
    local s = hget(LANE, 't' .. at)
    r = s and unpack_(s) or {0, 0, false, false}
    RINGS[at] = r
  end
  return r
end

local function ring_changed(q, band)
  RING_LIST[q.pre .. b6(band)] = true
end

-- limits: a bucket is 1 level, 2 at, 3 per; a rate 1 count, 2 per, 3 burst, 4 size (see core/limits.py)

local function floor_div(a, b) -- exact, where the quotient of two doubles would be rounded
  local q = floor(a / b)
  if q * b > a then q = q - 1 end
  return q
end
local function ceil_div(a, b) return -floor_div(-a, b) end

local function refilled(b, rate)
  local capacity = rate[4] * rate[2]
  local kept = b[1]
  if b[3] ~= rate[2] then kept = min(floor_div(b[1], b[3]), rate[4]) * rate[2] end
  local level = min(kept, capacity)
  local missing, elapsed = capacity - level, max(0, NOW - b[2])
  local gained = missing
  if elapsed < ceil_div(missing, rate[1]) then gained = elapsed * rate[1] end
  return level + gained, max(NOW, b[2])
end

local function token_in(b, rate)
  if not rate or not b then return 0 end
  local level = refilled(b, rate)
  return max(0, ceil_div(rate[2] - level, rate[1]))
end

local function taken(b, rate)
  if not b then b = {rate[4] * rate[2], NOW, rate[2]} end
  local level, at = refilled(b, rate)
  return {level - rate[2], at, rate[2]}
end

local function returned(b, rate, claimed) -- the token is worth what has not been gained since the claim
  local level, at = refilled(b, rate)
  local elapsed, worth = max(0, NOW - claimed), 0
  if elapsed < ceil_div(rate[2], rate[1]) then worth = rate[2] - elapsed * rate[1] end
  return {min(rate[4] * rate[2], level + worth), at, rate[2]}
end

local function lane_concurrency(q, l)
  if q.p.sequence then return 1 end
  if l.d and l.d.concurrency ~= nil then return l.d.concurrency end
  return q.p.lane_concurrency
end

local function lane_rate(q, l)
  if l.d and l.d.rate ~= nil then return l.d.rate end
  return q.p.lane_rate
end

local function lane_weight(l) return l.d and l.d.weight or 1 end

local function lane_running(q, l) -- a queue that never had a lane counts for its only one
  if q.laned then return l.u end
  return l.name == '' and q.running or 0
end

local function parked(q, l)
  if l.p then return 'paused' end
  local most = lane_concurrency(q, l)
  if most and lane_running(q, l) >= most then return 'concurrency' end
  if token_in(l.b, lane_rate(q, l)) > 0 then return 'rate' end
end

local function is_open(q)
  local p = q.p
  return not q.paused and (not p.concurrency or q.running < p.concurrency) and token_in(q.bucket, p.rate) == 0
end

local function is_limited(q)
  local p = q.p
  return p.concurrency or p.rate or p.lane_concurrency or p.lane_rate or p.sequence or q.laned
end
