-- Pruning: finished jobs and results that are to be kept no longer, and small records whose time is over.
-- include: flush
local ENDED_KEPT, DAY = 3600000000, 86400000000
local IDLE_LANES = 100 -- lanes that a pass looks at, from where the last one stopped

local function all_queues()
  local found, members = {}, zpage(NAMES, 'Dqueue' .. NUL, 1000)
  for i = 1, #members do
    local q = queue(string.match(members[i], '^Dqueue%z(%Z*)'))
    if q then found[#found + 1] = q end
  end
  table.sort(found, function(one, other) return one.p.born < other.p.born end)
  return found
end

local PARENTS = 1000 -- of a queue, that a pass looks at, from where the last one stopped and round

local function examine_parents(q) -- those that nobody needs any more stand with the others
  local p = 'p' .. q.pre
  local cursor = hget(SET, 'P' .. q.name) or nil
  local members = zpage(TIME, p, PARENTS, cursor)
  local stop = #members == PARENTS and members[PARENTS] or false
  if cursor and not stop then
    local more = zpage(TIME, p, PARENTS - #members)
    for i = 1, #more do
      if not is_less(cursor, more[i]) then members[#members + 1] = more[i] end
    end
  end
  for i = 1, #members do
    local j = job(sub(members[i], -16))
    if not is_needed(j) then
      unkeep(j)
      j.x.kept = 'k'
      zadd(TIME, kept_name(j))
      touch(j)
    end
  end
  if stop or cursor then hset(SET, 'P' .. q.name, stop) end
end

local function overdue(q, class, before) -- the oldest of a class, if it finished by then: when, and which
  local p = 'k' .. q.pre .. class
  local m = zfirst(TIME, p)
  if m and r7(m, #p + 1) <= before then return sub(m, #p + 1), m end
end

local function oldest(q, before) -- of the classes that are named, each with its own time
  local first, found
  for class, time in pairs(before) do
    local at, m = overdue(q, class, time)
    if not at then before[class] = nil end -- pruning makes none
    if at and (not first or is_less(at, first)) then first, found = at, m end
  end
  return found
end

local function drop_short(id, m, s) -- as the short way left it: nobody depends on it, and nothing else is kept of it
  local fence = struct.unpack('>I8', s, 10)
  local _, _, _, finished, _, _, size = struct.unpack('>I8I8I2c0I8I8I8I4', s, 18)
  local till = finished + WINDOW
  zrem(TIME, m)
  if till > NOW then bury(id, 't' .. pack({DONE, false, fence, 'done', finished, till}), till) end
  N.bytes = N.bytes - size
  hset(HEAD, id, false)
  hset(BODY, id, false)
  JOBS[id] = false
end

local function prune_one(q, m)
  local id = sub(m, -16)
  local s = JOBS[id] == nil and q.p.emit ~= 2 and hget(HEAD, id)
  if s and string.byte(s) == ENDED_SHORT then drop_short(id, m, s) else drop(job(id), 'prune') end
end

local function look_ahead(q, count) -- most of what goes has no result: their heads at once
  local members, ids = zpage(TIME, 'k' .. q.pre .. 'n', count), {}
  for i = 1, #members do ids[i] = sub(members[i], -16) end
  hload(HEAD, ids)
end

local function prune_queue(q, left)
  local p, pruned = q.p, 0
  local function prune_while(before, most)
    local m = left > 0 and pruned < most and oldest(q, before)
    if m then look_ahead(q, min(left, most - pruned)) end
    while m do
      prune_one(q, m)
      pruned, left = pruned + 1, left - 1
      m = left > 0 and pruned < most and oldest(q, before)
    end
  end
  if p.retention_count then -- too many: the oldest of those that nothing needs
    local kept = 0
    for _, class in ipairs({'n', 'r', 'c'}) do kept = kept + zcount(TIME, 'k' .. q.pre .. class) end
    prune_while({n = NOW, r = NOW, c = NOW}, kept - p.retention_count)
  end
  local before = NOW - p.retention
  local with_result = NOW - max(p.retention, p.result_ttl)
  prune_while({n = before, c = before, r = with_result, d = NOW - p.dead_retention}, pruned + left)
  return pruned, left
end

local function drop_results(q, left)
  while left > 0 do
    local _, m = overdue(q, 'r', NOW - q.p.result_ttl)
    if not m then break end
    local j = job(sub(m, -16))
    unkeep(j)
    set_past(j, 'r', false)
    N.bytes, j.size = N.bytes - j.x.result, j.size - j.x.result
    j.x.result = nil
    j.x.kept = 'k'
    zadd(TIME, kept_name(j))
    touch(j)
    left = left - 1
  end
  return left
end

local function prune(queues, left)
  local pruned, n = 0, 0
  for i = 1, #queues do
    if left > 0 then
      examine_parents(queues[i])
      n, left = prune_queue(queues[i], left)
      pruned = pruned + n
    end
  end
  for i = 1, #queues do left = drop_results(queues[i], left) end
  return pruned, left
end

local function forget_graves(left)
  while left > 0 and N.gone_first < N.gone_end do
    local name = 'P' .. n7(N.gone_first)
    local s = hget(GONE, name)
    if s and r7(s, 1) > NOW then break end
    local ids = {}
    for at = 8, s and #s or 0, 16 do ids[#ids + 1] = sub(s, at, at + 15) end
    hload(GONE, ids)
    for i = 1, #ids do
      if not tombstone(ids[i]) and not absorbed(ids[i]) and GONE.v[ids[i]] then hset(GONE, ids[i], false) end
    end
    left = max(0, left - #ids)
    hset(GONE, name, false)
    N.gone_first = N.gone_first + 1
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
