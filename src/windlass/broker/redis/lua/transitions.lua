-- Transitions: the one place where states change; and where waiting jobs wait.
--
-- TIME   D/d queue NUL due place job: scheduled jobs (d: suspects) · X expires arrival job: waiting jobs that expire
-- LINK   H key NUL due place job: held jobs
-- READY  B queue NUL arrival job: blocked jobs
-- include: filing
local MOVES = nil -- transitions, for verbs that return them
local EVENTS, DELTAS = {}, {}

local function count(j, state, by)
  local at = j.queue .. NUL .. j.task .. NUL .. state
  DELTAS[at] = (DELTAS[at] or 0) + by
end

-- How long a running job waited before it was handed out; nil for others.
local function waited_for(j) return j.state == RUNNING and max(0, j.claimed - j.due) or nil end

local function transition(j, move, after, reason, outcome, runtime, waited) -- after nil: removed
  local before = j.state
  if before >= 0 and before ~= DONE and before ~= CANCELLED then count(j, before, -1) end
  if after and ((after ~= DONE and after ~= CANCELLED) or before ~= after) then count(j, after, 1) end
  if after then
    j.state = after
    j.x.reason = reason
    touch(j)
  end
  if MOVES and before >= 0 and after then
    MOVES[#MOVES + 1] = j.id
    MOVES[#MOVES + 1] = pack({j.queue, j.task, j.lane, move, before, after, reason or false})
  end
  local emit = queue(j.queue).p.emit
  if emit == 0 then return end
  local is_end = before == RUNNING or (after and after >= DONE and before < DONE)
  if emit == 2 or is_end then
    EVENTS[#EVENTS + 1] = j.id .. pack({NOW, j.task, j.queue, j.lane, move, before, after or -1, reason or false,
      outcome or false, j.attempt, j.fence, runtime or false, waited or false})
  end
end

-- waiting

local function due_name(j)
  return (is_suspect(j) and 'd' or 'D') .. j.queue .. NUL .. n7(j.due) .. n7(j.seq) .. j.id
end
local function hold_name(j) return 'H' .. j.x.hold_key .. NUL .. n7(j.due) .. n7(j.seq) .. j.id end
local function blocked_name(j) return 'B' .. j.queue .. NUL .. n7(j.arrival) .. j.id end
local function expiry_name(j) return 'X' .. n7(j.x.expires) .. n7(j.arrival) .. j.id end

local function schedule(j) -- it has just become scheduled
  if not queue(j.queue).p.sequence then j.seq = number() end
  touch(j)
  zadd(TIME, due_name(j))
  if j.x.hold_key then zadd(LINK, hold_name(j)) end
end

local function leave_waiting(j) -- it leaves the place where it waits; its state is about to change
  if j.state == RDY then
    unfile(j)
  elseif j.state == SCHEDULED then
    zrem(TIME, due_name(j))
    if j.x.hold_key then zrem(LINK, hold_name(j)) end
  elseif j.state == BLOCKED then
    zrem(READY, blocked_name(j))
  end
end

local function make_waiting(j, move)
  if j.due > NOW then
    transition(j, move, SCHEDULED)
    schedule(j)
  else
    transition(j, move, RDY)
    file(j)
  end
end

local function promote(j, move)
  leave_waiting(j)
  transition(j, move, RDY)
  file(j)
end

local function watch_expiry(j) -- from here on it may expire
  if j.x.expires and not j.x.started then zadd(TIME, expiry_name(j)) end
end
local function forget_expiry(j)
  if j.x.expires and not j.x.started then zrem(TIME, expiry_name(j)) end
end
