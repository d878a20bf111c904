-- Forgetting: small records whose time is over, and lanes of which there is nothing left to say.
-- include: pruning
local ENDED_KEPT, DAY = 3600000000, 86400000000
local IDLE_LANES = 100 -- lanes that a pass looks at, from where the last one stopped

local function forget_page(name, s) -- how many ids were on it
  local ids = {}
  for at = 8, s and #s or 0, 16 do ids[#ids + 1] = sub(s, at, at + 15) end
  hload(GONE, ids)
  local ended = {}
  for i = 1, #ids do
    local id = ids[i]
    local kept = GONE.v[id]
    local kind = kept and string.byte(kept)
    if kind == 101 then -- e: of a job that is kept, if it has come back since
      if not tombstone(id) then ended[#ended + 1] = id end
    elseif kept and kind ~= 108 and not tombstone(id) and not absorbed(id) then
      hset(GONE, id, false)
    end
  end
  if #ended > 0 then
    local heads = call('HMGET', HEAD.k, unpack(ended))
    for i = 1, #ended do
      if not heads[i] then BATCHES.forgotten[#BATCHES.forgotten + 1] = ended[i] end
    end
  end
  hset(GONE, name, false)
  return #ids
end

local function forget_graves(left)
  local m = zfirst(TIME, 'G')
  while left > 0 and m and r7(m, 2) <= NOW do -- out of turn
    local name = 'P' .. sub(m, 9)
    left = max(0, left - forget_page(name, hget(GONE, name)))
    zrem(TIME, m)
    m = zfirst(TIME, 'G')
  end
  while left > 0 and N.gone_first < N.gone_end do
    local name = 'P' .. n7(N.gone_first)
    local s = hget(GONE, name)
    if s and r7(s, 1) > NOW then break end
    left = max(0, left - forget_page(name, s))
    N.gone_first = N.gone_first + 1
    if N.gone_first == N.gone_end then hset(GONE, 'M', false) end
  end
  return left
end

local function forget(left) -- keys, ids, ended sessions
  while left > 0 do
    local m = zfirst(TIME, 'K')
    if not m or r7(m, 2) > NOW then break end
    hset(KEY, sub(m, 9), false)
    KEYS_READ[sub(m, 9)] = false
    zrem(TIME, m)
    left = left - 1
  end
  left = forget_graves(left)
  local m = zfirst(TIME, 'O')
  while left > 0 and m and r7(m, 2) + ENDED_KEPT <= NOW do
    local id = sub(m, 9)
    local s = session(id)
    if s[8] == 0 then
      zrem(TIME, m)
      zrem(NAMES, 's' .. id)
      SESSIONS[id] = false
      hset(SESS, 'S' .. id, false)
      hset(SESS, 'I' .. id, false)
      hset(SESS, 'C' .. id, false)
      left = left - 1
    end
    m = zfirst(TIME, 'O', m)
  end
  return left
end

-- Lanes: what only says that they were here. A ring that has been empty for the resend window is forgotten; its
-- seats show by their generation that their clocks count for nothing.

local function forget_rings(q, bands)
  for band in pairs(bands) do
    local r = ring_of(q, band)
    if r[3] and r[3] <= NOW - WINDOW then
      r[1], r[2], r[3], r[4] = 0, 0, false, false
      ring_changed(q, band)
    end
  end
end

local function forget_bucket(q, l) -- full, and unused for so long that any rate would have filled it
  if not l.b or l.u > 0 or l.s > 0 or NOW - l.b[2] < DAY or lane_ready(l) > 0 then return end
  local rate = lane_rate(q, l)
  if not rate or refilled(l.b, rate) >= rate[4] * rate[2] then
    l.b = false
    lane_changed(l)
  end
end

local function forget_idle(q)
  if not q.laned then return end
  local p = 'L' .. q.pre
  local cursor = hget(SET, 'C' .. q.name)
  local members = zpage(NAMES, p, IDLE_LANES, cursor or nil)
  local names, bands = {}, {}
  for i = 1, #members do names[i] = 'l' .. sub(members[i], 2) end
  hload(LANE, names)
  for i = 1, #members do
    for band in pairs(lane_of(q, sub(members[i], #p + 1)).t) do bands[band] = true end
  end
  forget_rings(q, bands)
  for i = 1, #members do
    local l = lane_of(q, sub(members[i], #p + 1))
    forget_bucket(q, l)
    for band, seat in pairs(l.t) do
      local r = ring_of(q, band)
      if seat[1] == 0 and not seat[3] and (seat[4] ~= r[4] or seat[2] <= r[1]) then
        l.t[band] = nil
        lane_changed(l)
      end
    end
  end
  local stop = #members == IDLE_LANES and members[IDLE_LANES] or false
  if stop or cursor then hset(SET, 'C' .. q.name, stop) end
end
