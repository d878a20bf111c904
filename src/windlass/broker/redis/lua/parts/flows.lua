-- Flows: what the end of a parent does to the jobs that wait for it.
--
-- LINK  E parent arrival child policy: open edges · R parent arrival child: those of them that run · N parent arrival
--       child: unfinished jobs that depend on it · F number parent state and f parent number state: ends that are still
--       to be told
-- A policy is one letter: $OnFailure in codes.py.
-- module: flows
-- include: transitions, lifecycle
local FAN_OUT = $FAN_OUT -- dependents that one step tells; sweep tells the rest
local TELLING = nil -- where an end that comes about while dependents are told is put, instead of being told at once

local function edge_name(parent, j, policy) return 'E' .. parent .. bytes7(j.arrival) .. j.id .. policy end
local function run_name(parent, j) return 'R' .. parent .. bytes7(j.arrival) .. j.id end
local function need_name(parent, j) return 'N' .. parent .. bytes7(j.arrival) .. j.id end

function flows.parents(j) -- id and policy of each
  if not j.rare.after then return {} end
  local s, found = jobs.past(j, 'a'), {}
  for at = 1, #s, 17 do found[#found + 1] = {sub(s, at, at + 15), sub(s, at + 16, at + 16)} end
  return found
end

function flows.open_edge(parent, j, policy)
  zadd(LINK, edge_name(parent, j, policy))
  if policy == $OnFailure.RUN then zadd(LINK, run_name(parent, j)) end
end

local function close_edge(parent, j, policy)
  zrem(LINK, edge_name(parent, j, policy))
  if policy == $OnFailure.RUN then zrem(LINK, run_name(parent, j)) end
end

function flows.is_open(parent, j, policy) return zhas(LINK, edge_name(parent, j, policy)) end
function flows.need(parent, j) zadd(LINK, need_name(parent, j)) end

function flows.leave_parents(j) -- it has finished
  for _, edge in ipairs(flows.parents(j)) do
    if j.rare.waiting then close_edge(edge[1], j, edge[2]) end
    zrem(LINK, need_name(edge[1], j))
  end
  j.rare.waiting = nil
end

function flows.forget_needs(parent) -- of jobs that depended on another one under its id; beyond 1,000 they count as its own
  for _, m in ipairs(zpage(LINK, 'N' .. parent.id, 1000)) do zrem(LINK, m) end
end

local function next_edge(fate)
  if fate.state ~= $State.DEAD then return zfirst(LINK, 'E' .. fate.parent) end
  local parent = jobs.get(fate.parent)
  if parent and parent.state ~= $State.DEAD then return nil end -- replayed meanwhile
  local m = zfirst(LINK, 'R' .. fate.parent)
  return m and 'E' .. sub(m, 2) .. $OnFailure.RUN
end

local function resolve(child, fate, policy)
  if rules.edge(policy, fate.state) == $Edge.CANCEL then
    lifecycle.finish(child, $Move.PARENT_FAILED, $State.CANCELLED, $Reason.PARENT_FAILED)
    lifecycle.keep_or_remove(child)
    return
  end
  child.rare.waiting = child.rare.waiting - 1
  jobs.touch(child)
  if child.rare.waiting == 0 then
    child.rare.waiting = nil
    lifecycle.unblock(child)
  end
end

function flows.tell(fates, limit) -- oldest end first; how many dependents were told
  local told, outer = 0, TELLING
  TELLING = fates
  while fates[fates.at] and told < limit do
    local fate = fates[fates.at]
    local m = next_edge(fate)
    if not m then
      if fate.number then
        zrem(LINK, 'F' .. bytes7(fate.number) .. fate.parent .. fate.state)
        zrem(LINK, 'f' .. fate.parent .. bytes7(fate.number) .. fate.state)
      end
      fates[fates.at] = false
      fates.at = fates.at + 1
    else
      local child, policy = jobs.get(sub(m, 25, 40)), sub(m, 41, 41)
      close_edge(fate.parent, child, policy)
      told = told + 1
      resolve(child, fate, policy)
    end
  end
  TELLING = outer
  return told
end

function flows.leave_to_sweep(fates) -- what could not be told yet
  for i = fates.at, #fates do
    local fate = fates[i]
    if not fate.number then
      fate.number = number()
      zadd(LINK, 'F' .. bytes7(fate.number) .. fate.parent .. fate.state)
      zadd(LINK, 'f' .. fate.parent .. bytes7(fate.number) .. fate.state)
    end
  end
end

function flows.left_to_sweep(limit)
  local fates, members = {at = 1}, zpage(LINK, 'F', limit)
  for i = 1, #members do
    fates[i] = {number = read7(members[i], 2), parent = sub(members[i], 9, 24), state = tonumber(sub(members[i], 25))}
  end
  return fates
end

function flows.collect_in(fates) TELLING = fates end -- nil: ends are told at once

function flows.tell_dependents(j, state)
  if not j.rare.children or not zfirst(LINK, 'E' .. j.id) then return end
  if TELLING then
    TELLING[#TELLING + 1] = {parent = j.id, state = state}
    return
  end
  local fates = {{parent = j.id, state = state}, at = 1}
  FAN_OUT = FAN_OUT - flows.tell(fates, FAN_OUT)
  flows.leave_to_sweep(fates)
end

local function has_edge(parent, child)
  for _, policy in ipairs({$OnFailure.CANCEL, $OnFailure.IGNORE, $OnFailure.RUN}) do
    if flows.is_open(parent, child, policy) then return true end
  end
end

function flows.is_needed(j) -- by an unfinished job, or an end that is still to be told
  if not j.rare.children then return false end
  if TELLING then
    for i = TELLING.at, #TELLING do
      if TELLING[i].parent == j.id then return true end
    end
  end
  if zfirst(LINK, 'f' .. j.id) then return true end
  local prefix = 'N' .. j.id
  local m = zfirst(LINK, prefix)
  local looked = 0
  while m and looked < 1000 do
    local child = jobs.get(sub(m, 25, 40))
    if child and child.arrival == read7(m, 18) and child.state < $State.DONE then
      -- Those that wait for a dead parent have no claim on it: when it goes, their edges act.
      if j.state ~= $State.DEAD or not has_edge(j.id, child) then return true end
      m = zfirst(LINK, prefix, m)
    else
      zrem(LINK, m)
      m = zfirst(LINK, prefix)
    end
    looked = looked + 1
  end
  return m ~= nil
end
