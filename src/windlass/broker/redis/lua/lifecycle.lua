-- The end of a job: its key, its line, its dependents; what is kept of it, and for how long.
--
-- TIME  k/p queue NUL class finished arrival job: kept jobs (p: somebody may need them; class d dead, c cancelled,
--       r done with a result, n done without)
-- include: unique, flows, batches
local ENDED = {} -- jobs that finished, for those who watch
local function unblock(j) -- its last parent is out of its way
  zrem(READY, blocked_name(j))
  line_up(j)
  make_waiting(j, 'unblock')
end

local function release_key(j)
  if not j.x.key then return end
  local k = key_record(key_place(j))
  if not k then return end
  if k.follower == j.id then
    k.follower = nil
    save_key(k)
  elseif k.holder == j.id and k.follower then
    local follower = job(k.follower)
    k.holder, k.follower = follower.id, nil
    k.mode, k.window, k.accepted = follower.x.mode, follower.x.window, follower.accepted
    save_key(k)
    follower.x.waiting = nil
    unblock(follower)
  elseif k.holder == j.id then
    if k.till then zrem(TIME, 'K' .. n7(k.till) .. k.place) end
    k.till = j.x.finished + k.window
    if k.mode == THROTTLE then k.till = max(j.x.finished, k.accepted + k.window) end
    if k.till <= NOW then
      k.till = false
      drop_key(k)
    else
      zadd(TIME, 'K' .. n7(k.till) .. k.place)
      save_key(k)
    end
  end
end

local function finish(j, move, state, reason, outcome, runtime)
  local x = j.x
  if is_waiting(j.state) then forget_expiry(j) end
  leave_waiting(j)
  transition(j, move, state, reason, outcome, runtime, waited_for(j))
  x.finished = NOW
  x.cancel = nil
  if x.memos then
    set_past(j, 'm', false)
    x.memos = nil
  end
  for _, edge in ipairs(parents_of(j)) do
    if x.waiting then close_edge(edge[1], j, edge[2]) end
    zrem(LINK, need_name(edge[1], j))
  end
  x.waiting = nil
  touch(j)
  leave_line(j)
  release_key(j)
  tell_dependents(j, state)
  ENDED[#ENDED + 1] = j.id
end

local function keeps_result(j)
  return j.x.result and j.x.finished + queue(j.queue).p.result_ttl > NOW
end

local function kept_name(j)
  local class = j.state == DEAD and 'd' or j.state == CANCELLED and 'c' or j.x.result and 'r' or 'n'
  return j.x.kept .. j.queue .. NUL .. class .. n7(j.x.finished) .. n7(j.arrival) .. j.id
end

local function unkeep(j)
  if j.batch then
    BATCHES.leave(j)
  elseif j.x.kept then
    zrem(TIME, kept_name(j))
  end
  j.x.kept = nil
end

local function keep(j) -- a finished job that stays
  unkeep(j)
  j.x.kept = j.x.children and 'p' or 'k'
  zadd(TIME, kept_name(j))
  touch(j)
end

local function drop(j, move, outcome) -- remove a finished job; how it ended is remembered for the resend window
  local was = j.state
  unkeep(j)
  local till = j.x.finished + WINDOW
  if till > NOW then
    if outcome == nil and j.ends > 0 then
      local all = unpack_(past(j, 'd'))
      local last = all[#all]
      outcome = last[7] and last[6]
    end
    bury(j.id, 't' .. pack({was, j.x.reason or false, j.fence, outcome or false, j.x.finished, till}), till)
  elseif j.said then
    hset(GONE, j.id, false)
  end
  transition(j, move, nil)
  N.bytes = N.bytes - j.size
  hset(HEAD, j.id, false)
  hset(BODY, j.id, false)
  drop_past(j)
  JOBS[j.id] = false
  j.dropped = true
  touch(j)
  if was == DEAD then tell_dependents(j, CANCELLED) end
end

local function drop_if_unkept(j, outcome) -- a finished job of which nothing is to be kept goes at once
  if j.state < DONE or j.dropped then return end
  if j.state ~= DEAD and queue(j.queue).p.retention == 0 and not keeps_result(j) and not is_needed(j) then
    drop(j, 'prune', outcome)
  else
    keep(j)
  end
end

local function cancel_waiting(j, move, reason)
  finish(j, move, CANCELLED, reason)
  drop_if_unkept(j)
end

local function expire(j)
  finish(j, 'expire', DEAD, 'expired before its first start')
  keep(j)
end

LIFE.unblock, LIFE.finish, LIFE.drop_if_unkept = unblock, finish, drop_if_unkept
