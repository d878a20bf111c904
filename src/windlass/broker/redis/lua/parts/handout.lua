-- Handing out: who gets what next.
--
-- An ask: 1 queues, 2 slots, 3 limit, 4 session or false, 5 seq, 6 visibility or false, 7 alone, 8 max_bytes, 9 draw,
-- 10 soon
-- module: handout
-- include: leases, plain_jobs
local PROMOTE = 100 -- due jobs, and expired ones, that one claim looks after
local UNPARK = 1000 -- parked lanes that one claim brings back
local LOOK = 100 -- lanes that are asked whether they have a ready job; of more, one is assumed to: early is allowed

local function read_ask(a)
  return {queues = a[1], slots = a[2], limit = a[3], session = a[4], seq = a[5], visibility = a[6], alone = a[7],
    max_bytes = a[8], draw = a[9], soon = a[10]}
end

local function with_due(asked) -- the ranges of these queues that have a due job
  local found = {}
  for i = 1, #asked do
    for _, kind in ipairs({'D', 'd'}) do
      local prefix = kind .. asked[i].pre
      local m = zfirst(TIME, prefix)
      if m and read7(m, #prefix + 1) <= NOW then found[#found + 1] = prefix end
    end
  end
  return found
end

function handout.promote_due(asked, limit) -- in the order of their due times, over these queues; how many
  local ranges, promoted = with_due(asked), 0
  while promoted < limit do
    local first, first_at
    for i = 1, #ranges do
      local prefix = ranges[i]
      local m = zfirst(TIME, prefix)
      local at = m and sub(m, #prefix + 1)
      if at and read7(at, 1) <= NOW and (not first or is_less(at, first_at)) then first, first_at = m, at end
    end
    if not first then break end
    transitions.promote(jobs.get(sub(first, -16)), $Move.DUE)
    promoted = promoted + 1
  end
  return promoted
end

function handout.unpark(q, limit) -- lanes whose token has come
  if not q.laned then return end
  local prefix = 'W' .. q.pre
  for _ = 1, limit do
    local m = zfirst(RING, prefix)
    if not m or read7(m, #prefix + 1) > NOW then return end
    order.refresh(q, queues.lane(q, sub(m, #prefix + 8)))
  end
end

local function next_for(ask, q, handed_out)
  if ask.alone then return order.next_suspect(q) end
  return order.next_job(q, q.policy.bands and rules.next_draw(ask.draw, handed_out))
end

local function room(ask, q, j) -- how many jobs may be handed out before this one
  local p = q.policy
  local limited = p.concurrency or p.rate
  if not limited and q.limited then
    local l = queues.lane(q, j.kind.lane)
    limited = queues.lane_concurrency(q, l) or queues.lane_rate(q, l)
  end
  local last, timed = j.attempt + 1 >= j.max_attempts, queues.is_timed(j.kind.task)
  return rules.room_for(ask.alone, ask.slots, ask.soon, ask.limit, last, timed, limited)
end

local function start(ask, j) -- a lease begins
  transitions.forget_expiry(j)
  order.occupy(j)
  j.fence = rules.new_fence(j.fence, NOW)
  j.attempt = j.attempt + 1
  j.claimed, j.session, j.ask = NOW, ask.session, ask.session and ask.seq or 0
  if not ask.session then leases.set_deadline(j, NOW + ask.visibility) end
  transitions.make(j, $Move.CLAIM, $State.RUNNING, nil, nil, nil, max(0, NOW - j.due))
end

local function hand_out(ask, asked) -- new leases, and whether a bound stopped the claim
  local bound = PROMOTE - handout.promote_due(asked, PROMOTE)
  local given, payload, turn = {}, 0, rules.turn(ask.slots, ask.soon)
  for i = 1, #asked do
    local q = asked[i]
    q.ahead, q.turns = q.laned and turn or ask.limit + 1, {most = turn}
    handout.unpark(q, UNPARK)
    if not ask.alone then order.look_ahead(q, q.policy.lane_concurrency and ask.soon or ask.limit, turn) end
    local stopped
    payload, stopped = plain_jobs.claim(ask, q, given, payload)
    if stopped then return given, true end
    local j = next_for(ask, q, #given)
    while j do
      if jobs.is_expired(j) then
        lifecycle.expire(j)
        q.turns = {most = turn}
        bound = bound - 1
        if bound < 0 then return given, true end
      else
        if #given >= room(ask, q, j) then return given, true end
        payload = payload + j.size -- a ready job has no result
        if #given > 0 and payload > ask.max_bytes then return given, true end
        start(ask, j)
        given[#given + 1] = j
      end
      j = next_for(ask, q, #given)
    end
    if fifos.exhausted then return given, true end
  end
  return given, bound == 0 and #with_due(asked) > 0
end

local function lane_token(q) -- how long until the first lane has a token; nil if none waits for one
  local prefix = 'W' .. q.pre
  local m, least = zfirst(RING, prefix), nil
  for _ = 1, 100 do
    if not m then break end
    local l = queues.lane(q, sub(m, #prefix + 8))
    local wait = read7(m, #prefix + 1) - NOW
    if not l.bucket or l.bucket[2] <= NOW then return min(least or wait, wait) end
    -- The clock was set back behind this bucket, and its wake is of the time before: ask the next ones, too.
    wait = min(wait, queues.token_in(l.bucket, queues.lane_rate(q, l)))
    least = min(least or wait, wait)
    m = zfirst(RING, prefix, m)
  end
  return least
end

local function has_ready(q)
  if zfirst(READY, 'L' .. q.pre) or zfirst(READY, 'S' .. q.pre) then return true end
  if q.laned then
    if zfirst(RING, 'R' .. q.pre) then return true end
    local names = queues.lane_names(q, LOOK)
    for i = 1, #names do
      if queues.lane_ready(queues.lane(q, names[i])) > 0 then return true end
    end
    return #names == LOOK
  end
  for _, f in pairs(fifos.of(q)) do
    if f[5] > 0 then return true end
  end
end

local function wait_for(ask, q, claimable) -- when time alone may make something of a queue claimable for this kind of asker
  if q.paused then return nil end
  local least
  local function at_most(wait)
    if wait and (not least or wait < least) then least = max(0, wait) end
  end
  local prefix = (ask.alone and 'd' or 'D') .. q.pre
  local m = zfirst(TIME, prefix)
  if m then at_most(read7(m, #prefix + 1) - NOW) end
  if claimable then at_most(0) end
  local token = queues.token_in(q.bucket, q.policy.rate)
  if token > 0 and has_ready(q) then at_most(token) end
  if q.laned then
    local first = lane_token(q)
    if first then at_most(max(first, token)) end
  elseif q.limited then
    local l = queues.lane(q, '')
    local lane = queues.token_in(l.bucket, queues.lane_rate(q, l))
    if lane > 0 and has_ready(q) then at_most(max(lane, token)) end
  end
  return least
end

local function asked_queues(names)
  local found, seen = {}, {}
  for i = 1, #names do
    local name = names[i]
    if not seen[name] then
      seen[name] = true
      found[#found + 1] = queues.get(name) or nil
    end
  end
  return found
end

local function leases_for(ask, asked) -- leases, whether there are more; or nil and why not
  if not ask.session then return hand_out(ask, asked) end
  local s = leases.session(ask.session)
  local asker = rules.ask(s and not s.ended, ask.seq, s and s.seq or 0)
  if asker ~= $Asker.ALIVE then return nil, asker end
  if ask.seq == s.seq then return leases.given(s, ask.seq), false end
  local given, more = hand_out(ask, asked)
  leases.new_reply(s, ask.seq, given)
  return given, more
end

function handout.claim(a) -- decides; `handout.answer` gives the answer after the flush
  local ask = read_ask(a)
  local asked = asked_queues(ask.queues)
  local given, more = leases_for(ask, asked)
  if not given then return {asker = more} end
  local suspects, next_in = 0, nil
  for i = 1, #asked do
    local q = asked[i]
    q.turns = false
    order.put_back(q)
    -- Only what this kind of asker could have: a waiting suspect would wake the fleet for ever.
    local claimable = next_for(ask, q, 0)
    if claimable then order.arm(q) end
    suspects = suspects + zcount(READY, 'S' .. q.pre)
    local wait = wait_for(ask, q, claimable)
    if wait and (not next_in or wait < next_in) then next_in = wait end
  end
  local ids = {}
  for i = 1, #given do
    local j = given[i]
    ids[i] = j.id
    if j.rare.after then jobs.past(j, 'a') end -- read now: after the flush nothing may fail
    if j.rare.memos then jobs.past(j, 'm') end
  end
  hload(BODY, ids)
  return {asker = $Asker.ALIVE, given = given, ids = ids, more = more, next_in = next_in, suspects = min(suspects, 100)}
end

-- {asker (0 alive, 1 lost, 2 outdated), more, next_in or -1, suspects, now}; then, if there are leases: all ids in one, heads,
-- bodies; and of those with parents or memos: which, parents, memos
function handout.answer(c)
  if c.asker ~= $Asker.ALIVE then return {c.asker, 0, -1, 0, 0} end
  local out, heads, bodies, rare = {0, c.more and 1 or 0, c.next_in or -1, c.suspects, NOW}, {}, {}, {}
  if #c.given == 0 then return out end
  for i = 1, #c.given do
    local j = c.given[i]
    heads[i], bodies[i] = j.written or jobs.write_head(j), hget(BODY, j.id)
    if j.rare.after or j.rare.memos then
      rare[#rare + 1] = i - 1
      rare[#rare + 1] = j.rare.after and jobs.past(j, 'a') or ''
      rare[#rare + 1] = j.rare.memos and jobs.past(j, 'm') or ''
    end
  end
  out[6], out[7], out[8], out[9] = concat(c.ids), heads, bodies, rare
  return out
end
