-- Forgetting: small records whose time is over, and lanes of which there is nothing left to say.
-- module: forgetting
-- include: accept
local DAY = 86400000000
local IDLE_LANES = 100 -- lanes that a pass looks at, from where the last one stopped

local function forget_page(name) -- how many ids were on it
  local s, ids = hget(GONE, name), {}
  for at = 8, s and #s or 0, 16 do ids[#ids + 1] = sub(s, at, at + 15) end
  hload(GONE, ids)
  for i = 1, #ids do
    local id = ids[i]
    if hget(GONE, id) and not jobs.tombstone(id) and not jobs.absorbed(id) then hset(GONE, id, false) end
  end
  hset(GONE, name, false)
  return #ids
end

local function forget_graves(left)
  local m = zfirst(TIME, 'G')
  while left > 0 and m and read7(m, 2) <= NOW do -- out of turn
    left = max(0, left - forget_page('P' .. sub(m, 9)))
    zrem(TIME, m)
    m = zfirst(TIME, 'G')
  end
  while left > 0 and N.grave_first < N.grave_end do
    local name = 'P' .. bytes7(N.grave_first)
    local s = hget(GONE, name)
    if s and read7(s, 1) > NOW then break end
    left = max(0, left - forget_page(name))
    N.grave_first = N.grave_first + 1
    if N.grave_first == N.grave_end then hset(GONE, 'M', false) end
  end
  return left
end

local function forget_keys(left)
  while left > 0 do
    local m = zfirst(TIME, 'K')
    if not m or read7(m, 2) > NOW then break end
    keys.forget(sub(m, 9))
    zrem(TIME, m)
    left = left - 1
  end
  return left
end

local function forget_sessions(left)
  local m = zfirst(TIME, 'O')
  while left > 0 and m and read7(m, 2) + $ENDED_KEPT <= NOW do
    local id = sub(m, 9)
    if leases.session(id).leases == 0 then
      zrem(TIME, m)
      zrem(NAMES, 's' .. id)
      leases.forget_session(id)
      left = left - 1
    end
    m = zfirst(TIME, 'O', m)
  end
  return left
end

function forgetting.small_records(left) return forget_sessions(forget_graves(forget_keys(left))) end

-- Lanes: what only says that they were here. A ring that has been empty for the resend window is forgotten; its
-- seats show by their generation that their clocks count for nothing.

local function forget_rings(q, bands)
  for band in pairs(bands) do
    local r = order.ring(q, band)
    if r[3] and r[3] <= NOW - WINDOW then
      r[1], r[2], r[3], r[4] = 0, 0, false, false
      order.ring_changed(q, band)
    end
  end
end

local function forget_bucket(q, l) -- full, and unused for so long that any rate would have filled it
  local b = l.bucket
  if not b or l.running > 0 or l.suspects > 0 or NOW - b[2] < DAY or queues.lane_ready(l) > 0 then return end
  local rate = queues.lane_rate(q, l)
  if not rate or rules.refilled(b, rate, NOW)[1] >= rate[4] * rate[2] then
    l.bucket = false
    queues.lane_changed(l)
  end
end

function forgetting.idle_lanes(q)
  if not q.laned then return end
  local cursor = hget(SET, 'C' .. q.name)
  local names, bands = queues.lane_names(q, IDLE_LANES, cursor or nil), {}
  queues.load_lanes(q, names)
  for i = 1, #names do
    for band in pairs(queues.lane(q, names[i]).seats) do bands[band] = true end
  end
  forget_rings(q, bands)
  for i = 1, #names do
    local l = queues.lane(q, names[i])
    forget_bucket(q, l)
    for band, seat in pairs(l.seats) do
      local r = order.ring(q, band)
      if seat[1] == 0 and not seat[3] and (seat[4] ~= r[4] or seat[2] <= r[1]) then
        l.seats[band] = nil
        queues.lane_changed(l)
      end
    end
  end
  local stop = #names == IDLE_LANES and names[IDLE_LANES] or false
  if stop or cursor then hset(SET, 'C' .. q.name, stop) end
end
