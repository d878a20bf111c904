-- Transitions: the one place where states change; and where waiting jobs wait.
--
-- TIME   D/d queue NUL due number job: scheduled jobs (d: suspects) · X expires arrival job: waiting jobs that expire
-- LINK   H key NUL due number job: held jobs
-- READY  B queue NUL arrival job: blocked jobs
-- LOG    number: an event
-- module: transitions
-- include: order
local MOVES, EVENTS = nil, {}

function transitions.record() MOVES = {} end -- from here on moves are collected, for verbs that return them
function transitions.moves() return MOVES end
function transitions.any_events() return #EVENTS > 0 end

function transitions.make(j, move, after, reason, outcome, runtime, waited) -- after nil: it is removed
  local before, moves = j.state, j.kind.moves
  if before >= 0 and before ~= $State.DONE and before ~= $State.CANCELLED then moves[before] = (moves[before] or 0) - 1 end
  if after and ((after ~= $State.DONE and after ~= $State.CANCELLED) or before ~= after) then
    moves[after] = (moves[after] or 0) + 1
  end
  if after then
    j.state = after
    j.rare.reason = reason
    jobs.touch(j)
  end
  if MOVES and before >= 0 and after then
    MOVES[#MOVES + 1] = j.id
    MOVES[#MOVES + 1] = encode({j.kind.queue, j.kind.task, j.kind.lane, move, before, after, reason or false})
  end
  if rules.is_logged(j.kind.q.policy.emit, before, after) then
    EVENTS[#EVENTS + 1] = j.id .. encode({NOW, j.kind.task, j.kind.queue, j.kind.lane, move, before, after or -1, reason or false,
      outcome or false, j.attempt, j.fence, runtime or false, waited or false})
  end
end

function transitions.flush_events()
  for i = 1, #EVENTS do
    hset(LOG, N.log_end, EVENTS[i])
    N.log_end = N.log_end + 1
  end
  while N.log_end - N.log_first > EVENTS_KEPT do
    hset(LOG, N.log_first, false)
    N.log_first = N.log_first + 1
  end
end

function transitions.waited(j) -- how long a running job waited before it was handed out; nil for others
  return j.state == $State.RUNNING and max(0, j.claimed - j.due) or nil
end

-- waiting

local function due_name(j)
  return (jobs.is_suspect(j) and 'd' or 'D') .. j.kind.queue .. NUL .. bytes7(j.due) .. bytes7(j.seq) .. j.id
end
local function hold_name(j) return 'H' .. j.rare.hold_key .. NUL .. bytes7(j.due) .. bytes7(j.seq) .. j.id end
local function blocked_name(j) return 'B' .. j.kind.queue .. NUL .. bytes7(j.arrival) .. j.id end
local function expiry_name(j) return 'X' .. bytes7(j.rare.expires) .. bytes7(j.arrival) .. j.id end

function transitions.schedule(j) -- it has just become scheduled
  if not j.kind.q.policy.sequence then j.seq = number() end
  jobs.touch(j)
  zadd(TIME, due_name(j))
  if j.rare.hold_key then zadd(LINK, hold_name(j)) end
end

function transitions.block(j) zadd(READY, blocked_name(j)) end -- it has just become blocked

function transitions.leave_waiting(j) -- it leaves the place where it waits; its state is about to change
  if j.state == $State.READY then
    order.unfile(j)
  elseif j.state == $State.SCHEDULED then
    zrem(TIME, due_name(j))
    if j.rare.hold_key then zrem(LINK, hold_name(j)) end
  elseif j.state == $State.BLOCKED then
    zrem(READY, blocked_name(j))
  end
end

function transitions.make_waiting(j, move) -- scheduled if it is not due, else ready
  if j.due > NOW then
    transitions.make(j, move, $State.SCHEDULED)
    transitions.schedule(j)
  else
    transitions.make(j, move, $State.READY)
    order.file(j)
  end
end

function transitions.promote(j, move)
  transitions.leave_waiting(j)
  transitions.make(j, move, $State.READY)
  order.file(j)
end

function transitions.watch_expiry(j) -- from here on it may expire
  if j.rare.expires and not j.started then zadd(TIME, expiry_name(j)) end
end
function transitions.forget_expiry(j)
  if j.rare.expires and not j.started then zrem(TIME, expiry_name(j)) end
end
