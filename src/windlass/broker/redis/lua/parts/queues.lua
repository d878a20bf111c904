-- Queues and lanes: the policy in force, and what changes with every claim.
--
-- SET   Q queue: its policy (a map, see settings.lua) · R queue: paused, laned (a byte each), running (4), bucket if any
--       T task: a run of it was timed · A queue: its wake (A armed, W somebody may wait)
-- LANE  l queue NUL lane: the record of a lane
-- module: queues
-- include: context, rules, fifos
local QUEUES, LANES, TIMED = {}, {}, {}

function queues.get(name) -- false: not declared
  local q = QUEUES[name]
  if q ~= nil then return q end
  hload(SET, {'Q' .. name, 'R' .. name})
  local policy, s = hget(SET, 'Q' .. name), hget(SET, 'R' .. name)
  if not policy then
    q = false
  else
    q = queues.new(name, decode(policy))
    if s then
      local paused, laned, running = struct.unpack('>BBI4', s)
      q.paused, q.laned, q.running = paused == 1, laned == 1, running
      if q.laned then q.limited = true end
      q.bucket = #s > 6 and decode(sub(s, 7)) or false
    end
  end
  QUEUES[name] = q
  return q
end

function queues.new(name, policy)
  local pre = name .. NUL
  return {name = name, policy = policy, pre = pre, paused = false, laned = false, running = 0, bucket = false, turns = false,
    fifo = nil, firsts = {}, chunk_prefix = pre, per_chunk = $FIFO_CHUNK, in_order = 'L' .. pre .. NUL, ahead = 1, touched = false,
    limited = queues.limits(policy), fifo_touched = false, has_gaps = false, only_lane = false, out = false, all_in_fifo = nil}
end

function queues.add(q) QUEUES[q.name] = q end

function queues.changed(q) q.touched = true end

function queues.all() -- as they were declared
  local found, members = {}, zpage(NAMES, 'Dqueue' .. NUL, 1000)
  for i = 1, #members do
    local q = queues.get(string.match(members[i], '^Dqueue%z(%Z*)'))
    if q then found[#found + 1] = q end
  end
  table.sort(found, function(one, other) return one.policy.born < other.policy.born end)
  return found
end

function queues.is_timed(task)
  local t = TIMED[task]
  if t == nil then
    t = hget(SET, 'T' .. task) and true or false
    TIMED[task] = t
  end
  return t
end

function queues.timed(task)
  if queues.is_timed(task) then return end
  hset(SET, 'T' .. task, '1')
  TIMED[task] = true
end

-- A lane: suspects, running, paused, bucket, wake (when it has a token again), document, seats by band, fifo by band.
-- A seat: 1 ready jobs, 2 clock, 3 due or false (it is not in the ring), 4 generation of its ring or false.
-- Most lanes have one seat or none, and nothing else that has to be said of them. Their record is bytes: 1, then running
-- (4), band (6), ready (4), clock, due or 0, generation or 0 (8 each), and the fifo (4, 1, 4, 1, 4). Others are msgpack.
local SHORT_LANE = '>BI4I6I4I8I8I8I4BI4BI4'

local function new_lane(q, name, at) -- every field is named here: a table that grows later is made anew
  return {suspects = 0, running = 0, paused = false, bucket = false, wake = false, document = false, seats = {}, fifo = {},
    known = false, name = name, queue = q, firsts = {}, per_chunk = 16, chunk_prefix = NUL .. at .. NUL,
    in_order = 'L' .. at .. NUL, all_in_fifo = nil, fifo_touched = false, has_gaps = false, touched = false}
end

local function read_lane(l, s)
  l.known = true
  if byte(s) ~= 1 then
    for field, value in pairs(decode(s)) do l[field] = value end
    return
  end
  local _, running, band, ready, clock, due, generation, f1, f2, f3, f4, f5 = struct.unpack(SHORT_LANE, s)
  band = band - BAND_ZERO
  l.running = running
  if ready > 0 or generation > 0 then
    l.seats[band] = {ready, clock, due > 0 and due, generation > 0 and generation}
  end
  if f1 > 0 then l.fifo[band] = {f1, f2, f3, f4, f5, pushed = false, first = false, text = false} end
end

local function bare_fifo(records) -- without what is remembered beside them
  local bare = {}
  for band, f in pairs(records) do bare[band] = {f[1], f[2], f[3], f[4], f[5]} end
  return bare
end

local function write_lane(l)
  local band, seat = next(l.seats)
  local fifo_band, f = next(l.fifo)
  local one_band = (not band or not next(l.seats, band))
    and (not fifo_band or ((not band or fifo_band == band) and not next(l.fifo, fifo_band)))
  if one_band and l.suspects == 0 and not l.paused and not l.bucket and not l.wake and not l.document then
    seat, f = seat or {0, 0, false, false}, f or {0, 0, 0, 0, 0}
    return struct.pack(SHORT_LANE, 1, l.running, (band or fifo_band or 0) + BAND_ZERO, seat[1], seat[2], seat[3] or 0,
      seat[4] or 0, f[1], f[2], f[3], f[4], f[5])
  end
  return encode({suspects = l.suspects, running = l.running, paused = l.paused, bucket = l.bucket, wake = l.wake,
    document = l.document, seats = l.seats, fifo = bare_fifo(l.fifo)})
end

function queues.lane(q, name)
  local at = q.pre .. name
  local l = LANES[at]
  if l == nil then
    local s = hget(LANE, 'l' .. at)
    l = new_lane(q, name, at)
    if s then read_lane(l, s) end
    LANES[at] = l
  end
  return l
end

function queues.load_lanes(q, names)
  local fields = {}
  for i = 1, #names do fields[i] = 'l' .. q.pre .. names[i] end
  hload(LANE, fields)
end

function queues.lane_names(q, limit, after) -- lanes that have a record, in order
  local prefix = 'L' .. q.pre
  local members = zpage(NAMES, prefix, limit, after and prefix .. after)
  for i = 1, #members do members[i] = sub(members[i], #prefix + 1) end
  return members
end

function queues.lanes_read() return pairs(LANES) end

function queues.lane_changed(l) l.touched = true end

function queues.lane_ready(l) -- without suspects
  local n = 0
  for _, seat in pairs(l.seats) do n = n + seat[1] end
  return n
end

local function is_empty(l)
  return l.suspects == 0 and l.running == 0 and not l.paused and not l.bucket and not l.document
    and next(l.seats) == nil and next(l.fifo) == nil
end

function queues.flush()
  for name, q in pairs(QUEUES) do
    if q then
      if q.fifo_touched then fifos.flush(q) end
      if q.touched then
        hset(SET, 'R' .. name, struct.pack('>BBI4', q.paused and 1 or 0, q.laned and 1 or 0, q.running)
          .. (q.bucket and encode(q.bucket) or ''))
      end
    end
  end
  for at, l in pairs(LANES) do
    if l.fifo_touched then fifos.flush(l) end
    if l.touched or l.fifo_touched then
      local empty = is_empty(l)
      if empty and l.known then
        zrem(NAMES, 'L' .. at)
      elseif not empty and not l.known then
        zadd(NAMES, 'L' .. at)
      end
      if not empty or l.known then hset(LANE, 'l' .. at, not empty and write_lane(l) or false) end
    end
  end
end

-- limits

function queues.lane_concurrency(q, l)
  if q.policy.sequence then return 1 end
  if l.document and l.document.concurrency ~= nil then return l.document.concurrency end
  return q.policy.lane_concurrency
end

function queues.lane_rate(q, l)
  if l.document and l.document.rate ~= nil then return l.document.rate end
  return q.policy.lane_rate
end

function queues.lane_weight(l) return l.document and l.document.weight or 1 end

function queues.lane_running(q, l) -- a queue that never had a lane counts for its only one
  if q.laned then return l.running end
  return l.name == '' and q.running or 0
end

function queues.token_in(bucket, rate) -- how long until there is a token
  if not rate or not bucket then return 0 end
  return rules.token_in(bucket, rate, NOW)
end

function queues.take_token(bucket, rate) return rules.taken(bucket or rules.full(rate, NOW), rate, NOW) end

function queues.parked(q, l) -- why a lane hands out nothing; nil: it does
  if l.paused then return $Parked.PAUSED end
  local most = queues.lane_concurrency(q, l)
  if most and queues.lane_running(q, l) >= most then return $Parked.CONCURRENCY end
  if l.bucket and queues.token_in(l.bucket, queues.lane_rate(q, l)) > 0 then return $Parked.RATE end
end

function queues.is_open(q)
  local p = q.policy
  return not q.paused and (not p.concurrency or q.running < p.concurrency)
    and (not q.bucket or queues.token_in(q.bucket, p.rate) == 0)
end

function queues.limits(p) -- whether a policy has any; q.limited: its policy has, or it has lanes
  return (p.concurrency or p.rate or p.lane_concurrency or p.lane_rate or p.sequence) and true or false
end
