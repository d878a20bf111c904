-- Sessions and leases: a lease is handed out by claim; it ends when its holder settles it, with its session, or at a
-- deadline.
--
-- SESS   S session: ended (1), seq (8), leases (4), then in msgpack opened, seen, memory, ended at, silent for, ttl, queues,
--        number · L session NUL ask: a reply: how many of its leases are live (2), its jobs (16 each)
--        I session: info (text) · C session: cause (text), NUL, kind, NUL, started (job 16, fence 7 each)
-- LEASE  L session NUL ask: replies with live leases · F session NUL ask position job: leases to be cancelled
--        S queue NUL session: who serves a queue · D session: ended, with leases left
-- TIME   V deadline arrival job: deadline leases · A seen + ttl, session: sessions that live · O ended session
-- module: leases
-- include: lifecycle
local SESSIONS, REPLIES = {}, {}

local function read_session(id, s)
  local ended, seq, held = struct.unpack('>BI8I4', s)
  local a = decode(sub(s, 14))
  return {id = id, ended = ended == 1, seq = seq, leases = held, opened = a[1], seen = a[2], memory = a[3], ended_at = a[4],
    silent_for = a[5], ttl = a[6], queues = a[7], number = a[8], rest = sub(s, 14)}
end

function leases.session(id) -- false: not known
  local s = SESSIONS[id]
  if s == nil then
    local kept = hget(SESS, 'S' .. id)
    s = kept and read_session(id, kept) or false
    SESSIONS[id] = s
  end
  return s
end

function leases.add_session(s) SESSIONS[s.id] = s end
function leases.session_changed(s) -- more of it than seq and leases
  s.touched, s.rest = true, nil
end

function leases.forget_session(id)
  SESSIONS[id] = false
  hset(SESS, 'S' .. id, false)
  hset(SESS, 'I' .. id, false)
  hset(SESS, 'C' .. id, false)
end

function leases.liveness() -- the liveness clock as of now: where a sweep would move it
  if N.swept < 0 then return N.live end
  return N.live + rules.liveness_move(NOW - N.swept, TTL)
end

-- replies

function leases.reply(id, ask)
  local of = REPLIES[id]
  if not of then
    of = {}
    REPLIES[id] = of
  end
  local r = of[ask]
  if r == nil then
    local name = id .. NUL .. bytes7(ask)
    local s = hget(SESS, 'L' .. name)
    r = s and {live = struct.unpack('>I2', s), jobs = sub(s, 3), name = name, touched = false} or false
    of[ask] = r
  end
  return r
end

function leases.new_reply(s, ask, given)
  s.seq, s.leases, s.touched = ask, s.leases + #given, true
  if #given == 0 then return end
  local ids = {}
  for i = 1, #given do ids[i] = given[i].id end
  local name = s.id .. NUL .. bytes7(ask)
  REPLIES[s.id] = REPLIES[s.id] or {}
  REPLIES[s.id][ask] = {live = #ids, jobs = concat(ids), name = name, touched = true}
  zadd(LEASE, 'L' .. name)
end

function leases.given(s, ask) -- what a reply handed out, as far as it is still held under the same fence
  local r, found, ids = leases.reply(s.id, ask), {}, {}
  if not r then return found end
  for at = 1, #r.jobs, 16 do ids[#ids + 1] = sub(r.jobs, at, at + 15) end
  jobs.load(ids)
  for i = 1, #ids do
    local j = jobs.get(ids[i])
    if j and j.state == $State.RUNNING and j.session == s.id and j.ask == ask then found[#found + 1] = j end
  end
  return found
end

local function flag_name(j) -- in the order in which its session got its leases
  local ids, at = leases.reply(j.session, j.ask).jobs, 1
  while sub(ids, at, at + 15) ~= j.id do at = at + 16 end
  return 'F' .. j.session .. NUL .. bytes7(j.ask) .. struct.pack('>I2', (at - 1) / 16) .. j.id
end

function leases.flag(j) -- it is to be cancelled
  if j.rare.cancel then return end
  j.rare.cancel = 1
  jobs.touch(j)
  if j.session then zadd(LEASE, flag_name(j)) end
end

function leases.leave(session, ask) -- one lease of a reply has ended
  local s, r = leases.session(session), leases.reply(session, ask)
  s.leases, s.touched = s.leases - 1, true
  r.live, r.touched = r.live - 1, true
  if r.live == 0 then zrem(LEASE, 'L' .. r.name) end
end

function leases.flush()
  for id, s in pairs(SESSIONS) do
    if s and s.touched then
      hset(SESS, 'S' .. id, struct.pack('>BI8I4', s.ended and 1 or 0, s.seq, s.leases) .. (s.rest or encode({s.opened, s.seen,
        s.memory, s.ended_at, s.silent_for, s.ttl, s.queues, s.number})))
    end
  end
  for _, of in pairs(REPLIES) do
    for _, r in pairs(of) do
      if r and r.touched then
        hset(SESS, 'L' .. r.name, r.live > 0 and struct.pack('>I2', r.live) .. r.jobs or false)
      end
    end
  end
end

-- what the rules ask of a lease

function leases.is_live(j, fence)
  if not j then return false end
  local s = j.state == $State.RUNNING and j.session and leases.session(j.session)
  return rules.is_live(j.state, j.fence, fence, not j.session or (s and not s.ended or false))
end

function leases.facts(j)
  local rare = j.rare
  local k = keys.held(j)
  return {attempt = j.attempt, max_attempts = j.max_attempts, crashes = rare.crashes or 0, cancel_requested = rare.cancel,
    superseded = k and k.follower, holds = rare.hold_key and rare.hold_times or 0,
    held_for = rare.hold_key and NOW - rare.hold_since or 0}
end

-- deadlines

local function deadline_name(j) return 'V' .. bytes7(j.rare.deadline) .. bytes7(j.arrival) .. j.id end

function leases.set_deadline(j, at) -- nil: it has none any more
  if j.rare.deadline then zrem(TIME, deadline_name(j)) end
  j.rare.deadline = at
  if at then zadd(TIME, deadline_name(j)) end
end

-- the end of a lease

function leases.forget_hold(rare)
  rare.hold_key, rare.hold_reason, rare.hold_since, rare.hold_times = nil, nil, nil, nil
end

local function deliver(j, ruling, cause, runtime, err) -- note how the attempt ended; the last ten are kept
  if ruling.state == $State.DONE and not err then
    j.runtime = runtime and runtime + 2 or 1 -- its head tells it
    return
  end
  local all = j.ends > 0 and decode(jobs.past(j, 'd')) or {}
  all[#all + 1] = {j.fence, j.attempt, j.session, j.claimed, NOW, ruling.outcome, not cause, cause and cause.text or false,
    runtime or false, err or false}
  if #all > $DELIVERIES then table.remove(all, 1) end
  j.ends = #all
  jobs.set_past(j, 'd', encode(all))
end

-- cause: {kind, text} of a session that ended or a deadline, nil if its holder settled it. unstarted: it never ran.
function leases.finish(j, ruling, unstarted, cause, runtime, err)
  local rare = j.rare
  local ran = runtime or ruling.charged
  deliver(j, ruling, cause, runtime, err)
  if j.session then
    if rare.cancel then zrem(LEASE, flag_name(j)) end
    leases.leave(j.session, j.ask)
  end
  if rare.deadline then leases.set_deadline(j, nil) end
  if ruling.state ~= $State.DONE then j.session = false end -- of a done job it belongs to its delivery
  j.ask = 0
  if ran then j.started = true end
  if not ruling.charged then j.attempt = j.attempt - 1 end
  if cause and rules.is_crash(cause.kind, ruling.charged) then rare.crashes = (rare.crashes or 0) + 1 end
  if err then
    jobs.set_past(j, 'e', err)
    rare.error = 1
  end
  if ran and rare.hold_key then leases.forget_hold(rare) end
  jobs.touch(j)
  order.vacate(j, unstarted)
  if jobs.is_finished(ruling.state) then
    lifecycle.finish(j, ruling.move, ruling.state, ruling.reason, ruling.outcome, runtime)
    return
  end
  local waited = transitions.waited(j)
  if not ruling.keeps_place then j.due = NOW + ruling.delay end
  transitions.watch_expiry(j)
  transitions.make(j, ruling.move, ruling.state, nil, ruling.outcome, runtime, waited)
  if ruling.state == $State.SCHEDULED then transitions.schedule(j) else order.file(j, ruling.keeps_place) end
end

function leases.late(id, fence) -- the answer to a message about a lease that is not live: {verdict, outcome, state or -1, why}
  local j = jobs.get(id)
  if not j then
    local t = jobs.tombstone(id)
    if not t then return {$Verdict.GONE, '', -1, ''} end
    if t[3] == fence and t[4] then return {$Verdict.ALREADY, t[4], t[1], ''} end
    return {$Verdict.STALE, '', -1, ''}
  end
  if j.runtime > 0 and j.fence == fence then return {$Verdict.ALREADY, $Outcome.DONE, j.state, ''} end
  local all = j.ends > 0 and decode(jobs.past(j, 'd')) or {}
  for i = 1, #all do
    if all[i][1] == fence and all[i][7] then return {$Verdict.ALREADY, all[i][6], j.state, ''} end
  end
  return {$Verdict.STALE, '', -1, ''}
end

function leases.load(ids) -- jobs that messages are about, and what is left of those that are gone
  jobs.load(ids)
  local gone = {}
  for i = 1, #ids do
    if not hget(HEAD, ids[i]) then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then hload(GONE, gone) end
end
