-- The rules: decisions without I/O, the same as in windlass.core, one function each. A test feeds the same cases to both
-- languages (tests/broker/rules). A word like $State.READY is put in by the linker (scripts.py), from windlass.core.
local rules = {}

-- Leases (core/lease.py).

function rules.new_fence(last, now) -- higher than any fence of this job, and of a job that had its id before
  return max(last + 1, now)
end

function rules.is_live(state, held, fence, session_alive) -- the fence check on which everything rests
  return state == $State.RUNNING and held == fence and session_alive
end

-- How many leases an answer may have with such a job as its last. Of the ask: whether it is for suspects, slots, soon, limit.
function rules.room_for(suspects, slots, soon, limit, last, timed, limited)
  if suspects then return min(1, slots) end
  if last or not timed then return slots end
  return limited and max(slots, soon) or limit
end

function rules.ask(alive, seq, answered) -- by its session, its number, and that of the last one that was answered
  if not alive or seq > answered + 1 then return $Asker.LOST end -- beyond the next: an answer was forgotten (a failover)
  return seq < answered and $Asker.OUTDATED or $Asker.ALIVE
end

-- Rulings (core/settlement.py): what the end of a lease does to its job. Facts are what the store knows of it:
-- attempt, max_attempts, crashes, cancel_requested, superseded, holds, held_for.

local function ruling(outcome, move, state, reason, delay, charged, keeps_place)
  return {outcome = outcome, move = move, state = state, reason = reason, delay = delay or 0, charged = charged ~= false,
    keeps_place = keeps_place or false}
end

local DONE = ruling($Outcome.DONE, $Move.DONE, $State.DONE)

local function later(outcome, move, delay, charged)
  return ruling(outcome, move, delay > 0 and $State.SCHEDULED or $State.READY, nil, max(0, delay), charged)
end
local function given_back()
  return ruling($Outcome.RELEASE, $Move.RELEASE, $State.READY, nil, 0, false, true)
end
local function cancelled() return ruling($Outcome.CANCELLED, $Move.CANCEL, $State.CANCELLED, $Reason.CANCELLED) end

local function rule_cancelled(facts) -- with the flag set, or a newer call waiting, every end but done is `cancelled`
  if facts.cancel_requested then return cancelled() end
  if facts.superseded then
    return ruling($Outcome.CANCELLED, $Move.SUPERSEDE, $State.CANCELLED, $Reason.SUPERSEDED)
  end
end

function rules.hold_delay(holds) return min($HOLD_CAP, $HOLD_FIRST * 2 ^ min(holds, 16)) end

function rules.crash_delay(crashes)
  if crashes <= 1 then return 0 end
  return min($CRASH_CAP, $SECOND * 2 ^ min(crashes - 2, 6))
end

function rules.settlement(facts, outcome, delay)
  if outcome == $Outcome.DONE then return DONE end
  local ended = rule_cancelled(facts)
  if ended then return ended end
  if outcome == $Outcome.CANCELLED then return cancelled() end
  if outcome == $Outcome.DEAD then return ruling($Outcome.DEAD, $Move.DEAD, $State.DEAD, $Reason.GAVE_UP) end
  if outcome == $Outcome.RETRY then
    if facts.attempt >= facts.max_attempts then
      return ruling($Outcome.DEAD, $Move.RETRY, $State.DEAD, $Reason.EXHAUSTED)
    end
    return later($Outcome.RETRY, $Move.RETRY, delay)
  end
  if outcome == $Outcome.SNOOZE then return later($Outcome.SNOOZE, $Move.SNOOZE, delay, false) end
  if outcome == $Outcome.HOLD then
    if facts.held_for >= $HOLD_LIMIT then
      return ruling($Outcome.DEAD, $Move.HOLD, $State.DEAD, $Reason.HELD_TOO_LONG, 0, false)
    end
    return later($Outcome.HOLD, $Move.HOLD, rules.hold_delay(facts.holds), false)
  end
  return given_back()
end

function rules.session_end(facts, cause, started)
  local ended = rule_cancelled(facts)
  if ended then return ended end
  if cause == $Cause.STOP or (cause == $Cause.CRASH and not started) then return given_back() end
  local move, reason = $Move.LOST, $Reason.LOST
  if cause == $Cause.CRASH then move, reason = $Move.CRASH, $Reason.CRASHED end
  if facts.attempt >= facts.max_attempts then return ruling($Outcome.DEAD, move, $State.DEAD, reason) end
  local delay = rules.crash_delay(facts.crashes + 1)
  if delay > 0 then return ruling($Outcome.RETRY, move, $State.SCHEDULED, nil, delay) end
  return ruling($Outcome.RETRY, move, $State.READY, nil, 0, true, true)
end

function rules.deadline(facts)
  local ended = rule_cancelled(facts)
  if ended then return ended end
  if facts.attempt >= facts.max_attempts then
    return ruling($Outcome.DEAD, $Move.DEADLINE, $State.DEAD, $Reason.DEADLINE)
  end
  return ruling($Outcome.RETRY, $Move.DEADLINE, $State.READY, nil, 0, true, true)
end

function rules.is_crash(cause, charged) -- whether an end counts towards being a suspect
  return charged and (cause == $Cause.CRASH or cause == $Cause.LOST)
end

-- Unique keys (core/dedup.py).

function rules.key(mode, holder, within_window) -- holder: the state of the job that holds the key, or nil
  if holder == nil then return $Key.CREATE end
  if holder <= $State.READY then -- it waits
    return mode == $Mode.REPLACE and $Key.REPLACE or $Key.DUPLICATE
  end
  if holder == $State.RUNNING then return mode == $Mode.REPLACE and $Key.FOLLOW or $Key.DUPLICATE end
  if mode == $Mode.REPLACE or not within_window then return $Key.CREATE end
  return $Key.DUPLICATE
end

function rules.held_until(mode, window, accepted, finished)
  if mode == $Mode.THROTTLE then return max(finished, accepted + window) end
  return finished + window
end

-- When a job is due that is accepted now (core/job.py).
function rules.due_at(run_at, delay, now) return run_at and max(now, run_at) or now + delay end

-- Edges (core/edge.py): what the state of a parent does to a job that waits for it.
function rules.edge(on_failure, parent)
  if parent == $State.DONE then return $Edge.FREE end
  if parent == $State.CANCELLED then return on_failure == $OnFailure.CANCEL and $Edge.CANCEL or $Edge.FREE end
  if parent == $State.DEAD and on_failure == $OnFailure.RUN then return $Edge.FREE end
  return $Edge.WAIT
end

-- Events (core/event.py): whether a queue logs a transition. before: -1 if it is not placed yet; after: nil if it is removed.
function rules.is_logged(emit, before, after)
  if emit == $Emit.ALL then return true end
  return emit == $Emit.FINAL
    and (before == $State.RUNNING or (after ~= nil and after >= $State.DONE and before < $State.DONE))
end

-- Order (core/order.py). bands: {priority, weight} each, or false.

function rules.stride(weight) return floor($STRIDE / weight) end

function rules.turn(slots, soon) return min($MAX_TURN, 1 + floor(max(0, soon - slots) / $TURN_STEP)) end

local function listed_band(bands, priority)
  local lowest, found
  for i = 1, #bands do
    local listed = bands[i][1]
    if not lowest or listed < lowest then lowest = listed end
    if listed <= priority and (not found or listed > found) then found = listed end
  end
  return 0 - (found or lowest)
end

function rules.band(priority, due, bands, age_step)
  if age_step then return floor(due / age_step) - priority end
  return bands and listed_band(bands, priority) or 0 - priority
end

function rules.next_draw(draw, claimed) return (draw + claimed * $WEYL) % 4294967296 end

function rules.choose_band(present, bands, draw) -- present: in order
  if not bands then return present[1] end
  local order, first, share, total = {}, {}, {}, 0
  for i = 1, #present do
    local listed = listed_band(bands, 0 - present[i])
    if not first[listed] then
      first[listed] = present[i]
      for k = 1, #bands do
        if bands[k][1] == 0 - listed then share[listed] = bands[k][2] end
      end
      order[#order + 1] = listed
      total = total + share[listed]
    end
  end
  local point = floor(draw * total / 4294967296)
  for i = 1, #order do
    if point < share[order[i]] then return first[order[i]] end
    point = point - share[order[i]]
  end
end

-- Token buckets (core/limits.py). A bucket: 1 level, 2 at, 3 per. A rate: 1 count, 2 per, 3 burst, 4 size.

local function floor_div(a, b) -- exact, where the quotient of two doubles would be rounded
  local q = floor(a / b)
  if q * b > a then q = q - 1 end
  return q
end
local function ceil_div(a, b) return -floor_div(-a, b) end

function rules.refilled(bucket, rate, now)
  local capacity, level = rate[4] * rate[2], bucket[1]
  if bucket[3] ~= rate[2] then level = min(floor_div(level, bucket[3]), rate[4]) * rate[2] end
  level = min(level, capacity)
  local missing, elapsed = capacity - level, max(0, now - bucket[2])
  local gained = missing
  if elapsed < ceil_div(missing, rate[1]) then gained = elapsed * rate[1] end
  return {level + gained, max(now, bucket[2]), rate[2]}
end

function rules.full(rate, now) return {rate[4] * rate[2], now, rate[2]} end

function rules.token_in(bucket, rate, now) -- how long until a token can be taken
  return max(0, ceil_div(rate[2] - rules.refilled(bucket, rate, now)[1], rate[1]))
end

function rules.taken(bucket, rate, now)
  local b = rules.refilled(bucket, rate, now)
  return {b[1] - rate[2], b[2], b[3]}
end

function rules.returned(bucket, rate, now, claimed) -- the token is worth what was not gained since the claim
  local b = rules.refilled(bucket, rate, now)
  local elapsed, worth = max(0, now - claimed), 0
  if elapsed < ceil_div(rate[2], rate[1]) then worth = rate[2] - elapsed * rate[1] end
  return {min(rate[4] * rate[2], b[1] + worth), b[2], b[3]}
end

function rules.tokens(bucket, rate, now) return floor_div(rules.refilled(bucket, rate, now)[1], rate[2]) end

-- Sweep (core/session.py). elapsed: since the last pass.

function rules.is_early(elapsed, every, left_work) -- elapsed: nil before the first pass
  return elapsed ~= nil and elapsed >= 0 and elapsed < every and not left_work
end

-- How far it moves the liveness clock.
function rules.liveness_move(elapsed, ttl)
  if elapsed > max($OUTAGE_STEP, floor(ttl / $OUTAGE_SHARE)) then return $OUTAGE_STEP end
  return max(0, elapsed)
end
