-- Flows: what the end of a parent does to the jobs that wait for it.
--
-- LINK   E parent arrival child policy: open edges · R parent arrival child: those of them that run · N parent
--        arrival child: who depends on it and is unfinished · F number parent state and f parent number state:
--        ends that are still to be told
-- include: transitions
local LIFE = {} -- what lifecycle.lua does: an end of one job may be the end of another
local FAN_OUT = 100 -- dependents that one step tells
local TELLING = nil -- where an end that comes about while dependents are told is put

local function edge_name(parent, j, policy) return 'E' .. parent .. n7(j.arrival) .. j.id .. policy end
local function run_name(parent, j) return 'R' .. parent .. n7(j.arrival) .. j.id end

local function need_name(parent, j) return 'N' .. parent .. n7(j.arrival) .. j.id end

local function parents_of(j) -- id and policy of each
  if not j.x.after then return {} end
  local s, found = past(j, 'a'), {}
  for at = 1, #s, 17 do found[#found + 1] = {sub(s, at, at + 15), sub(s, at + 16, at + 16)} end
  return found
end

local function close_edge(parent, j, policy)
  zrem(LINK, edge_name(parent, j, policy))
  if policy == 'r' then zrem(LINK, run_name(parent, j)) end
end

local function next_edge(fate)
  if fate.state ~= DEAD then return zfirst(LINK, 'E' .. fate.parent) end
  local parent = job(fate.parent)
  if parent and parent.state ~= DEAD then return nil end -- replayed meanwhile
  local m = zfirst(LINK, 'R' .. fate.parent)
  return m and 'E' .. sub(m, 2) .. 'r'
end

local function resolve(child, fate, policy)
  if fate.state == CANCELLED and policy == 'c' then
    LIFE.finish(child, 'parent failed', CANCELLED, 'parent failed')
    LIFE.drop_if_unkept(child)
    return
  end
  child.x.waiting = child.x.waiting - 1
  touch(child)
  if child.x.waiting == 0 then
    child.x.waiting = nil
    LIFE.unblock(child)
  end
end

local function resolve_fates(fates, limit) -- oldest end first; what is not done stays
  local told, outer = 0, TELLING
  TELLING = fates
  while fates[fates.at] and told < limit do
    local fate = fates[fates.at]
    local m = next_edge(fate)
    if not m then
      if fate.number then
        zrem(LINK, 'F' .. n7(fate.number) .. fate.parent .. fate.state)
        zrem(LINK, 'f' .. fate.parent .. n7(fate.number) .. fate.state)
      end
      fates[fates.at] = false
      fates.at = fates.at + 1
    else
      local child, policy = job(sub(m, 25, 40)), sub(m, 41, 41)
      close_edge(fate.parent, child, policy)
      told = told + 1
      resolve(child, fate, policy)
    end
  end
  TELLING = outer
  return told
end

local function keep_fates(fates) -- leave ends to sweep
  for i = fates.at, #fates do
    local fate = fates[i]
    if not fate.number then
      fate.number = number()
      zadd(LINK, 'F' .. n7(fate.number) .. fate.parent .. fate.state)
      zadd(LINK, 'f' .. fate.parent .. n7(fate.number) .. fate.state)
    end
  end
end

local function tell_dependents(j, state)
  if not j.x.children or not zfirst(LINK, 'E' .. j.id) then return end
  if TELLING then
    TELLING[#TELLING + 1] = {parent = j.id, state = state}
    return
  end
  local fates = {{parent = j.id, state = state}, at = 1}
  FAN_OUT = FAN_OUT - resolve_fates(fates, FAN_OUT)
  keep_fates(fates)
end

local function has_edge(parent, child)
  for _, policy in ipairs({'c', 'i', 'r'}) do
    if zhas(LINK, edge_name(parent, child, policy)) then return true end
  end
end

local function is_needed(j) -- by an unfinished job, or an end that is still to be told
  if not j.x.children then return false end
  if TELLING then
    for i = TELLING.at, #TELLING do
      if TELLING[i].parent == j.id then return true end
    end
  end
  if zfirst(LINK, 'f' .. j.id) then return true end
  local p = 'N' .. j.id
  local m = zfirst(LINK, p)
  local looked = 0
  while m and looked < 1000 do
    local child = job(sub(m, 25, 40))
    local same = child and child.arrival == r7(m, 18)
    if same and child.state < DONE then
      -- Those that wait for a dead parent have no claim on it: when it goes, their edges act.
      if j.state ~= DEAD or not has_edge(j.id, child) then return true end
      m = zfirst(LINK, p, m)
    else
      zrem(LINK, m)
      m = zfirst(LINK, p)
    end
    looked = looked + 1
  end
  return m ~= nil
end
