-- The end of a job: its key, its line, its dependents; what is kept of it, and for how long.
--
-- TIME  k/p queue NUL class finished arrival job: kept jobs (p: somebody may need them; class d dead, c cancelled,
--       r done with a result, n done without)
-- module: lifecycle
-- include: keys, transitions, flows
local ENDED = {} -- jobs that finished, for the waiters

function lifecycle.ended() return ENDED end
function lifecycle.note_end(id) ENDED[#ENDED + 1] = id end

function lifecycle.unblock(j) -- its last parent is out of its way
  transitions.leave_waiting(j)
  order.line_up(j)
  transitions.make_waiting(j, $Move.UNBLOCK)
end

function lifecycle.finish(j, move, state, reason, outcome, runtime)
  local rare = j.rare
  if jobs.is_waiting(j.state) then
    transitions.forget_expiry(j)
    transitions.leave_waiting(j)
  end
  transitions.make(j, move, state, reason, outcome, runtime, transitions.waited(j))
  j.finished = NOW
  rare.cancel = nil
  if rare.memos then
    jobs.set_past(j, 'm', false)
    rare.memos = nil
  end
  if rare.after then flows.leave_parents(j) end
  rare.waiting = nil
  if rare.line then order.leave_line(j) end
  if rare.key then
    local follower = keys.release(j)
    if follower then
      follower.rare.waiting = nil
      lifecycle.unblock(follower)
    end
  end
  if rare.children then flows.tell_dependents(j, state) end
  lifecycle.note_end(j.id)
end

-- keeping

local function kept_prefix(j)
  local class = 'n'
  if j.state == $State.DEAD then
    class = 'd'
  elseif j.state == $State.CANCELLED then
    class = 'c'
  elseif j.rare.result then
    class = 'r'
  end
  return j.kept .. j.kind.q.pre .. class
end

local function kept_name(j) return kept_prefix(j) .. struct.pack('>I7I7c16', j.finished, j.arrival, j.id) end

function lifecycle.unkeep(j)
  if j.kept then zrem(TIME, kept_name(j)) end
  j.kept = false
end

function lifecycle.keep(j, how) -- how: k, or p if somebody may need it
  lifecycle.unkeep(j)
  j.kept = how or (j.rare.children and 'p' or 'k')
  zadd(TIME, kept_name(j))
  jobs.touch(j)
end

function lifecycle.drop_result(j)
  if j.kept then zrem(TIME, kept_name(j)) end
  jobs.set_past(j, 'r', false)
  N.bytes, j.size = N.bytes - j.rare.result, j.size - j.rare.result
  j.rare.result = nil
  if j.kept then zadd(TIME, kept_name(j)) end
  jobs.touch(j)
end

function lifecycle.last_outcome(j) -- of a finished job, if its holder said it; else false
  if j.runtime > 0 then return $Outcome.DONE end
  if j.ends == 0 then return false end
  local all = decode(jobs.past(j, 'd'))
  local last = all[#all]
  return last[7] and last[6]
end

function lifecycle.remove(j, move) -- a finished job; how it ended is remembered for the resend window
  local was = j.state
  lifecycle.unkeep(j)
  jobs.bury(j, lifecycle.last_outcome(j))
  transitions.make(j, move, nil)
  jobs.remove(j)
  if was == $State.DEAD then flows.tell_dependents(j, $State.CANCELLED) end
end

function lifecycle.keep_or_remove(j) -- a finished job of which nothing is to be kept goes at once
  if j.state < $State.DONE or j.removed then return end
  local policy = j.kind.q.policy
  local unkept = j.state ~= $State.DEAD and policy.retention == 0
    and not (j.rare.result and j.finished + policy.result_ttl > NOW)
  if unkept and not (j.rare.children and flows.is_needed(j)) then
    lifecycle.remove(j, $Move.PRUNE)
  else
    lifecycle.keep(j)
  end
end

function lifecycle.cancel_waiting(j, move, reason)
  lifecycle.finish(j, move, $State.CANCELLED, reason)
  lifecycle.keep_or_remove(j)
end

function lifecycle.expire(j)
  lifecycle.finish(j, $Move.EXPIRE, $State.DEAD, $Reason.EXPIRED)
  lifecycle.keep(j)
end
