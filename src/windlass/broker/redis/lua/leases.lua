-- Leases: handed out by claim, ended by a word of their holder, by the end of a session, or by a deadline.
--
-- LEASE  L session NUL seq: replies with live leases · F session NUL seq position job: leases to be cancelled
--        S queue NUL session: who serves a queue · D session: ended, with leases left
-- include: lifecycle, session
local SESSIONS, REPLIES = {}, {}
local HOLD_LIMIT, HOLD_CAP = 604800000000, 300000000

local function session(id)
  local s = SESSIONS[id]
  if s == nil then
    local kept = hget(SESS, 'S' .. id)
    s = kept and read_session(kept) or false
    if s then s.id = id end
    SESSIONS[id] = s
  end
  return s
end

local function session_changed(s) s.touched = true end

-- A reply: how many of its leases are live, and its jobs in their order.
local function reply(id, seq)
  local name = id .. NUL .. n7(seq)
  local r = REPLIES[name]
  if r == nil then
    local s = hget(SESS, 'L' .. name)
    r = s and {live = struct.unpack('>I2', s), jobs = sub(s, 3), name = name} or false
    REPLIES[name] = r
  end
  return r
end

local function new_reply(id, seq, jobs)
  local name = id .. NUL .. n7(seq)
  REPLIES[name] = {live = #jobs, jobs = concat(jobs), name = name, touched = true}
  zadd(LEASE, 'L' .. name)
end

local function flag_name(j) -- in the order in which its session got its leases
  local jobs, at = reply(j.session, j.lseq).jobs, 1
  while sub(jobs, at, at + 15) ~= j.id do at = at + 16 end
  return 'F' .. j.session .. NUL .. n7(j.lseq) .. n2((at - 1) / 16) .. j.id
end

local function leave_session(j)
  local s, r = session(j.session), reply(j.session, j.lseq)
  s[8] = s[8] - 1
  session_changed(s)
  r.live = r.live - 1
  r.touched = true
  if r.live == 0 then zrem(LEASE, 'L' .. r.name) end
  if j.x.cancel then
    zrem(LEASE, flag_name(j))
  end
end

local function flush_sessions()
  for id, s in pairs(SESSIONS) do
    if s and s.touched then
      hset(SESS, 'S' .. id, write_session(s))
    end
  end
  for name, r in pairs(REPLIES) do
    if r and r.touched then
      hset(SESS, 'L' .. name, r.live > 0 and struct.pack('>I2', r.live) .. r.jobs or false)
    end
  end
end

local function is_live(j, fence) -- the fence check on which everything rests
  if not j or j.state ~= RUNNING or j.fence ~= fence then return false end
  if not j.session then return true end
  local s = session(j.session)
  return s and not s[1]
end

-- rulings (see core/settlement.py): outcome, move, state, reason, delay, charged, keeps_place

local function later(outcome, delay, charged)
  return {outcome, outcome, delay > 0 and SCHEDULED or RDY, nil, max(0, delay), charged, false}
end
local GIVEN_BACK = {'release', 'release', RDY, nil, 0, false, true}

local function rule_cancelled(j)
  if j.x.cancel then return {'cancelled', 'cancel', CANCELLED, 'cancelled on request', 0, true, false} end
  local k = held_key(j)
  if k and k.follower then return {'cancelled', 'supersede', CANCELLED, 'superseded', 0, true, false} end
end

local function rule_settlement(j, outcome, delay)
  if outcome == 'done' then return {'done', 'done', DONE, nil, 0, true, false} end
  local ended = rule_cancelled(j)
  if ended then return ended end
  if outcome == 'cancelled' then
    return {'cancelled', 'cancel', CANCELLED, 'cancelled on request', 0, true, false}
  elseif outcome == 'dead' then
    return {'dead', 'dead', DEAD, 'gave up', 0, true, false}
  elseif outcome == 'retry' then
    if j.attempt >= j.max then return {'dead', 'retry', DEAD, 'attempts exhausted', 0, true, false} end
    return later('retry', delay, true)
  elseif outcome == 'snooze' then
    return later('snooze', delay, false)
  elseif outcome == 'hold' then
    local x = j.x
    if x.hold_key and NOW - x.hold_since >= HOLD_LIMIT then
      return {'dead', 'hold', DEAD, 'held too long', 0, false, false}
    end
    return later('hold', min(HOLD_CAP, 1000000 * 2 ^ min(x.hold_key and x.hold_times or 0, 16)), false)
  end
  return GIVEN_BACK
end

local function rule_session_end(j, kind, started)
  local ended = rule_cancelled(j)
  if ended then return ended end
  if kind == 'stop' or (kind == 'crash' and not started) then return GIVEN_BACK end
  local move, reason = 'lost', 'worker lost'
  if kind == 'crash' then move, reason = 'crash', 'crashed its worker' end
  if j.attempt >= j.max then return {'dead', move, DEAD, reason, 0, true, false} end
  local crashes = (j.x.crashes or 0) + 1
  if crashes > 1 then
    return {'retry', move, SCHEDULED, nil, min(60000000, 1000000 * 2 ^ min(crashes - 2, 6)), true, false}
  end
  return {'retry', move, RDY, nil, 0, true, true}
end

local function rule_deadline(j)
  local ended = rule_cancelled(j)
  if ended then return ended end
  if j.attempt >= j.max then return {'dead', 'deadline', DEAD, 'lease ran out', 0, true, false} end
  return {'retry', 'deadline', RDY, nil, 0, true, true}
end

-- the end of a lease. A settlement has no cause; everything else has one: {kind, as text}

local function deliver(j, ruling, cause, runtime, err)
  local all = j.ends > 0 and unpack_(past(j, 'd')) or {}
  all[#all + 1] = {j.fence, j.attempt, j.session, j.claimed, NOW, ruling[1], not cause, cause and cause[2] or false,
    runtime, err}
  if #all > 10 then table.remove(all, 1) end
  set_past(j, 'd', pack(all))
  j.ends = min(10, j.ends + 1)
end

local function forget_hold(x) x.hold_key, x.hold_reason, x.hold_since, x.hold_times = nil, nil, nil, nil end

local function end_lease(j, ruling, unstarted, cause, runtime, err, spawns)
  local x = j.x
  local ran = runtime or ruling[6]
  -- Of a job that leaves nothing behind, nothing is written; one that it spawns may depend on it.
  local leaves = ruling[3] == DONE and not (x.children or x.result or spawns) and queue(j.queue).p.retention == 0
  if not leaves or j.ends > 0 then deliver(j, ruling, cause, runtime or false, err or false) end
  if j.session then leave_session(j) end
  if x.deadline then
    zrem(TIME, 'V' .. n7(x.deadline) .. n7(j.arrival) .. j.id)
    x.deadline = nil
  end
  j.session, j.lseq = false, 0
  if ran then x.started = 1 end
  if not ruling[6] then j.attempt = j.attempt - 1 end
  if cause and ruling[6] and (cause[1] == 'crash' or cause[1] == 'lost') then x.crashes = (x.crashes or 0) + 1 end
  if err then
    set_past(j, 'e', err)
    x.error = 1
  end
  if ran then forget_hold(x) end
  touch(j)
  vacate(j, unstarted)
  if ruling[3] >= DONE then
    finish(j, ruling[2], ruling[3], ruling[4], ruling[1], runtime)
    return
  end
  local waited = waited_for(j)
  if not ruling[7] then j.due = NOW + ruling[5] end
  watch_expiry(j)
  transition(j, ruling[2], ruling[3], nil, ruling[1], runtime, waited)
  if ruling[3] == SCHEDULED then schedule(j) else file(j, ruling[7]) end
end
