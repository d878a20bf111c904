-- Queues and lanes: the policy in force, and what changes with every claim.
--
-- SET   Q queue: policy (map, see settings.lua) · R queue: paused, laned, running, bucket · T task: it was timed
--       A queue: its wake (A armed, W somebody may wait)
-- LANE  l queue NUL lane: a lane's record · t queue NUL band: a ring's
-- FIFO  c queue: by band, the chunks of its fifo
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
    local a = s and unpack_(s) or {false, false, 0, false}
    q.paused, q.laned, q.running, q.bucket = a[1], a[2], a[3], a[4]
  end
  QUEUES[name] = q
  return q
end

local function queue_changed(q) q.touched = true end

-- A lane: s suspects, u running, p paused, b bucket, k wake, d what its document says, t seats by band.
-- A seat: 1 ready jobs, 2 clock, 3 due or false, 4 generation of its ring.
local function lane_of(q, name)
  local at = q.pre .. name
  local l = LANES[at]
  if l == nil then
    local s = hget(LANE, 'l' .. at)
    l = s and unpack_(s) or {s = 0, u = 0, p = false, b = false, k = false, d = false, t = {}}
    l.known = s and true or false
    l.name, l.queue = name, q
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
  return l.s == 0 and l.u == 0 and not l.p and not l.b and not l.d and next(l.t) == nil
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

local function returned(b, rate)
  local level, at = refilled(b, rate)
  return {min(rate[4] * rate[2], level + rate[2]), at, rate[2]}
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
