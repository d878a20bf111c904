-- Handing out: who gets what next.
--
-- An ask (from the adapter): 1 queues, 2 slots, 3 limit, 4 session or false, 5 seq, 6 visibility or false, 7 alone,
-- 8 max_bytes, 9 draw, 10 soon (absent: slots)
-- include: flush
local PROMOTE = 100 -- due jobs, and expired ones, that one claim looks after
local UNPARK = 1000 -- parked lanes that one claim brings back
local WEYL, TWO32 = 2654435769, 4294967296

local function with_due(queues) -- the ranges of these queues that have a due job
  local found = {}
  for i = 1, #queues do
    for _, kind in ipairs({'D', 'd'}) do
      local p = kind .. queues[i].pre
      local m = zfirst(TIME, p)
      if m and r7(m, #p + 1) <= NOW then found[#found + 1] = p end
    end
  end
  return found
end

local function promote_due(queues, limit) -- in order of their due times, over these queues
  local ranges, promoted = with_due(queues), 0
  while promoted < limit do
    local best, best_at
    for i = 1, #ranges do
      local p = ranges[i]
      local m = zfirst(TIME, p)
      local at = m and sub(m, #p + 1)
      if at and r7(at, 1) <= NOW and (not best or is_less(at, best_at)) then best, best_at = m, at end
    end
    if not best then break end
    promote(job(sub(best, -16)), 'due')
    promoted = promoted + 1
  end
  return promoted
end

local function unpark(q, limit) -- lanes whose token has come
  if not q.laned then return end
  local p = 'W' .. q.pre
  for _ = 1, limit do
    local m = zfirst(RING, p)
    if not m or r7(m, #p + 1) > NOW then return end
    refresh(q, lane_of(q, sub(m, #p + 8)))
  end
end

local function next_for(ask, q, handed_out)
  if ask[7] then return next_suspect(q) end
  return next_job(q, (ask[9] + handed_out * WEYL) % TWO32)
end

local TIMED = {}
local function is_timed(task)
  local t = TIMED[task]
  if t == nil then
    t = hget(SET, 'T' .. task) and true or false
    TIMED[task] = t
  end
  return t
end

local function room(ask, q, j) -- how many jobs may be handed out before this one
  if ask[7] then return min(1, ask[2]) end
  local p = q.p
  local limited = p.concurrency or p.rate
  if not limited and is_limited(q) then
    local l = lane_of(q, j.lane)
    limited = lane_concurrency(q, l) or lane_rate(q, l)
  end
  if j.attempt + 1 >= j.max or not is_timed(j.task) then return ask[2] end
  return limited and (ask[10] or ask[2]) or ask[3]
end

local function start(ask, j)
  forget_expiry(j)
  occupy(j)
  j.fence = max(j.fence + 1, NOW)
  j.attempt = j.attempt + 1
  j.claimed = NOW
  j.session = ask[4]
  if ask[4] then
    j.lseq = ask[5]
  else
    j.x.deadline = NOW + ask[6]
    zadd(TIME, 'V' .. n7(j.x.deadline) .. n7(j.arrival) .. j.id)
  end
  transition(j, 'claim', RUNNING, nil, nil, nil, max(0, NOW - j.due))
end

local function hand_out(ask, queues) -- new leases, and whether a bound stopped the claim
  local bound = PROMOTE - promote_due(queues, PROMOTE)
  local leases, payload = {}, 0
  local turn = min(4, 1 + floor(((ask[10] or ask[2]) - ask[2]) / 32)) -- `order.turn_of`
  for i = 1, #queues do
    local q = queues[i]
    q.ahead, q.turns = ask[3] + 1, {most = turn}
    unpark(q, UNPARK)
    local j = next_for(ask, q, #leases)
    while j do
      if is_expired(j) then
        expire(j)
        q.turns = {most = turn}
        bound = bound - 1
        if bound < 0 then return leases, true end
      else
        if #leases >= room(ask, q, j) then return leases, true end
        payload = payload + j.size -- a ready job has no result
        if #leases > 0 and payload > ask[8] then return leases, true end
        start(ask, j)
        leases[#leases + 1] = j
      end
      j = next_for(ask, q, #leases)
    end
    q.turns = nil
    if SKIPPED_OUT then return leases, true end
  end
  return leases, bound == 0 and #with_due(queues) > 0
end

local function lane_token(q) -- how long until the first lane of a laned queue has a token; nil if none waits
  local p = 'W' .. q.pre
  local m = zfirst(RING, p)
  local least
  for _ = 1, 100 do
    if not m then break end
    local l = lane_of(q, sub(m, #p + 8))
    local wait = r7(m, #p + 1) - NOW
    if not l.b or l.b[2] <= NOW then return min(least or wait, wait) end
    -- The clock was set back behind this bucket, and its wake is of the time before: ask the next ones, too.
    wait = min(wait, token_in(l.b, lane_rate(q, l)))
    least = min(least or wait, wait)
    m = zfirst(RING, p, m)
  end
  return least
end

local LOOK = 100 -- lanes that are asked whether they have a ready job; of more, one is assumed to: early is allowed

local function has_ready(q)
  if zfirst(READY, 'L' .. q.pre) or zfirst(READY, 'S' .. q.pre) then return true end
  if q.laned then
    if zfirst(RING, 'R' .. q.pre) then return true end
    local p = 'L' .. q.pre
    local members = zpage(NAMES, p, LOOK)
    for i = 1, #members do
      if lane_ready(lane_of(q, sub(members[i], #p + 1))) > 0 then return true end
    end
    return #members == LOOK
  end
  for _, f in pairs(fifos(q)) do
    if f[5] > 0 then return true end
  end
end

local function next_chance(ask, queues) -- when time alone may make something claimable for this kind of asker
  local least
  local function wait(for_)
    if for_ and (not least or for_ < least) then least = max(0, for_) end
  end
  for i = 1, #queues do
    local q = queues[i]
    if not q.paused then
      local p = (ask[7] and 'd' or 'D') .. q.pre
      local m = zfirst(TIME, p)
      if m then wait(r7(m, #p + 1) - NOW) end
      if ask.claimable[q.name] then wait(0) end
      local token = token_in(q.bucket, q.p.rate)
      if token > 0 and has_ready(q) then wait(token) end
      if q.laned then
        local first = lane_token(q)
        if first then wait(max(first, token)) end
      elseif is_limited(q) then
        local l = lane_of(q, '')
        local lane = token_in(l.b, lane_rate(q, l))
        if lane > 0 and has_ready(q) then wait(max(lane, token)) end
      end
    end
  end
  return least
end

local function asked_queues(ask)
  local found, seen = {}, {}
  for i = 1, #ask[1] do
    local name = ask[1][i]
    if not seen[name] then
      seen[name] = true
      found[#found + 1] = queue(name) or nil
    end
  end
  return found
end

local function again(s, seq) -- what the last reply handed out, as far as it is still held under the same fence
  local r, leases = reply(s.id, seq), {}
  if not r then return leases end
  for at = 1, #r.jobs, 16 do
    local j = job(sub(r.jobs, at, at + 15))
    if j and j.state == RUNNING and j.session == s.id and j.lseq == seq then leases[#leases + 1] = j end
  end
  return leases
end

local function claim(ask) -- decides; `claimed` gives the answer after the flush
  local queues, leases, more = asked_queues(ask), nil, false
  if ask[4] then
    local s = session(ask[4])
    if not s or s[1] then return {asker = 1} end
    if ask[5] < s[5] then return {asker = 2} end
    if ask[5] > s[5] + 1 then return {asker = 1} end -- this server has forgotten an answer (a failover)
    if ask[5] == s[5] then
      leases = again(s, ask[5])
    else
      leases, more = hand_out(ask, queues)
      s[5], s[8] = ask[5], s[8] + #leases
      session_changed(s)
      if #leases > 0 then
        local ids = {}
        for i = 1, #leases do ids[i] = leases[i].id end
        new_reply(s.id, ask[5], ids)
      end
    end
  else
    leases, more = hand_out(ask, queues)
  end
  local suspects = 0
  ask.claimable = {}
  for i = 1, #queues do
    -- Only what this kind of asker could have: a waiting suspect would wake the fleet for ever.
    if next_for(ask, queues[i], 0) then
      ask.claimable[queues[i].name] = true
      arm(queues[i])
    end
    suspects = suspects + zcount(READY, 'S' .. queues[i].pre)
  end
  local bodies = {}
  for i = 1, #leases do
    local j = leases[i]
    bodies[i] = j.id
    if j.x.after then past(j, 'a') end -- read now: after the flush nothing may fail
    if j.x.memos then past(j, 'm') end
  end
  hload(BODY, bodies)
  return {asker = 0, leases = leases, more = more, next_in = next_chance(ask, queues), suspects = min(suspects, 100)}
end

-- {asker, more, next_in or -1, suspects, now}; then, if there are leases, all ids in one; per lease head and body; of
-- those with parents or memos: which, parents, memos
local function claimed(c)
  if c.asker > 0 then return {c.asker, 0, -1, 0, 0} end
  local out, ids, n = {0, c.more and 1 or 0, c.next_in or -1, c.suspects, NOW}, {}, #c.leases
  if n == 0 then return out end
  out[6] = ''
  for i = 1, n do
    local j = c.leases[i]
    ids[i] = j.id
    out[5 + 2 * i] = j.packed or write_head(j)
    out[6 + 2 * i] = hget(BODY, j.id)
    if j.x.after or j.x.memos then
      out.rare = out.rare or {}
      out.rare[#out.rare + 1] = {i - 1, j.x.after and past(j, 'a') or '', j.x.memos and past(j, 'm') or ''}
    end
  end
  out[6] = concat(ids)
  local rare = out.rare or {}
  for i = 1, #rare do
    for k = 1, 3 do out[#out + 1] = rare[i][k] end
  end
  return out
end
