-- Pruning: finished jobs and results that are to be kept no longer.
-- module: pruning
-- include: accept, plain_jobs
local PARENTS = 1000 -- of a queue, that a pass looks at, from where the last one stopped and round
local EVER = 2 ^ 53 - 1 -- later than any end, also than those that a clock that was set back has still before it

function pruning.examine_parents(q) -- those that nobody needs any more stand with the others
  local prefix = 'p' .. q.pre
  local cursor = hget(SET, 'P' .. q.name) or nil
  local members = zpage(TIME, prefix, PARENTS, cursor)
  local stop = #members == PARENTS and members[PARENTS] or false
  if cursor and not stop then
    local more = zpage(TIME, prefix, PARENTS - #members)
    for i = 1, #more do
      if not is_less(cursor, more[i]) then members[#members + 1] = more[i] end
    end
  end
  for i = 1, #members do
    local j = jobs.get(sub(members[i], -16))
    if not flows.is_needed(j) then lifecycle.keep(j, 'k') end
  end
  if stop or cursor then hset(SET, 'P' .. q.name, stop) end
end

local function overdue(q, class, before) -- the oldest of a class, if it finished by then: when, and which
  local prefix = 'k' .. q.pre .. class
  local m = zfirst(TIME, prefix)
  if m and read7(m, #prefix + 1) <= before then return sub(m, #prefix + 1), m end
end

local function oldest(q, before) -- of the classes that are named, each with its own time
  local first, found
  for class, time in pairs(before) do
    local at, m = overdue(q, class, time)
    if not at then before[class] = nil end -- pruning makes none
    if at and (not first or is_less(at, first)) then first, found = at, m end
  end
  return found
end

local function look_ahead(q, count) -- most of what goes has no result: their heads at once
  local members, ids = zpage(TIME, 'k' .. q.pre .. 'n', count), {}
  for i = 1, #members do ids[i] = sub(members[i], -16) end
  jobs.load(ids)
end

local function prune_while(q, before, most) -- up to so many of those that finished by then; how many
  local pruned = 0
  if most <= 0 then return 0 end
  look_ahead(q, most)
  while pruned < most do
    local m = oldest(q, before)
    if not m then break end
    local id = sub(m, -16)
    if not plain_jobs.prune(id, m) then lifecycle.remove(jobs.get(id), $Move.PRUNE) end
    pruned = pruned + 1
  end
  return pruned
end

local function prune_queue(q, left, keep_dead)
  local p, pruned = q.policy, 0
  if p.retention_count then -- too many: the oldest of those that nothing needs
    local kept = 0
    for _, class in ipairs({'n', 'r', 'c'}) do kept = kept + zcount(TIME, 'k' .. q.pre .. class) end
    pruned = prune_while(q, {n = EVER, r = EVER, c = EVER}, min(left, kept - p.retention_count))
  end
  local before = NOW - p.retention
  local with_result = NOW - max(p.retention, p.result_ttl)
  local at = {n = before, c = before, r = with_result, d = not keep_dead and NOW - p.dead_retention or nil}
  if oldest(q, at) then pruned = pruned + prune_while(q, at, left - pruned) end
  return pruned
end

local function drop_results(q, left)
  while left > 0 do
    local _, m = overdue(q, 'r', NOW - q.policy.result_ttl)
    if not m then break end
    lifecycle.drop_result(jobs.get(sub(m, -16)))
    left = left - 1
  end
  return left
end

function pruning.prune(all, left, keep_dead) -- how many jobs were pruned, and what is left of the bound
  local pruned = 0
  for i = 1, #all do
    if left > 0 then
      pruning.examine_parents(all[i])
      local n = prune_queue(all[i], left, keep_dead)
      pruned, left = pruned + n, left - n
    end
  end
  for i = 1, #all do left = drop_results(all[i], left) end
  return pruned, left
end

function pruning.overdue_letters(all) -- the oldest dead letters of each queue that nothing needs and whose time is over
  local found = {}
  for i = 1, #all do
    local q = all[i]
    local prefix = 'k' .. q.pre .. 'd'
    local members = zpage(TIME, prefix, $OVERDUE)
    for at = 1, #members do
      if read7(members[at], #prefix + 1) <= NOW - q.policy.dead_retention then found[#found + 1] = sub(members[at], -16) end
    end
  end
  return found
end
