-- Pruning: finished jobs and results that are to be kept no longer.
-- include: flush

local function all_queues()
  local found, members = {}, zpage(NAMES, 'Dqueue' .. NUL, 1000)
  for i = 1, #members do
    local q = queue(string.match(members[i], '^Dqueue%z(%Z*)'))
    if q then found[#found + 1] = q end
  end
  table.sort(found, function(one, other) return one.p.born < other.p.born end)
  return found
end

local PARENTS = 1000 -- of a queue, that a pass looks at, from where the last one stopped and round

local function examine_parents(q) -- those that nobody needs any more stand with the others
  local p = 'p' .. q.pre
  local cursor = hget(SET, 'P' .. q.name) or nil
  local members = zpage(TIME, p, PARENTS, cursor)
  local stop = #members == PARENTS and members[PARENTS] or false
  if cursor and not stop then
    local more = zpage(TIME, p, PARENTS - #members)
    for i = 1, #more do
      if not is_less(cursor, more[i]) then members[#members + 1] = more[i] end
    end
  end
  for i = 1, #members do
    local j = job(sub(members[i], -16))
    if not is_needed(j) then
      unkeep(j)
      j.x.kept = 'k'
      zadd(TIME, kept_name(j))
      touch(j)
    end
  end
  if stop or cursor then hset(SET, 'P' .. q.name, stop) end
end

local function overdue(q, class, before) -- the oldest of a class, if it finished by then: when, and which
  local p = 'k' .. q.pre .. class
  local m = zfirst(TIME, p)
  if m and r7(m, #p + 1) <= before then return sub(m, #p + 1), m end
end

local function oldest(q, before) -- of the classes that are named, each with its own time
  local first, found
  for class, time in pairs(before) do
    local at, m = overdue(q, class, time)
    if not at then before[class] = nil end -- pruning makes none
    if at and (not first or is_less(at, first)) then first, found = at, m end
  end
  return first, found
end

local function look_ahead(q, count) -- most of what goes has no result: their heads at once
  local members, ids = zpage(TIME, 'k' .. q.pre .. 'n', count), {}
  for i = 1, #members do ids[i] = sub(members[i], -16) end
  load_jobs(ids)
end

local function first_batch(q, before, after) -- when it ended, its number, its name
  local p = 'b' .. q.pre
  local m = zfirst(TIME, p, after)
  if not m then return nil end
  local finished, number = struct.unpack('>I7I7', m, #p + 1)
  if finished <= before then return {finished, number, m} end
end

local function take_apart(b) -- its jobs are kept one by one
  local ids = BATCHES.of(b[2]).ids
  load_jobs(ids)
  for i = 1, #ids do
    local j = job(ids[i])
    if j and j.batch == b[2] then keep(j) end
  end
  zrem(TIME, b[3])
end

local function weigh(number, n) -- the bytes of a batch of so many jobs, if it is known
  local s = hget(PAST, 'b' .. number)
  if not s then return nil end
  local counted, bytes = struct.unpack('>I4I7', s)
  return counted == n and bytes or nil
end

local function split_batch(ids, s, most) -- the first that arrived; the rest as it is said; the bytes of the first
  local heads, arrived, sizes, in_order, last, n = call('HMGET', HEAD.k, unpack(ids)), {}, {}, true, 0, #ids
  for i = 1, n do
    local size, arrival = 0, 0
    if heads[i] then size, arrival = struct.unpack('>I4I8', heads[i], 26) end
    arrived[i], sizes[i], in_order, last = arrival, size, in_order and arrival >= last, arrival
  end
  local first, bytes = {}, 0
  if in_order then -- most are: a sort would compare them in Lua
    for i = 1, most do first[i], bytes = ids[i], bytes + sizes[i] end
    return first, sub(s, most * SAID + 1), bytes
  end
  local places, rest = {}, {}
  for i = 1, n do places[i] = i end
  table.sort(places, function(one, other) return arrived[one] < arrived[other] end)
  for i = 1, most do first[i], bytes = ids[places[i]], bytes + sizes[places[i]] end
  for i = most + 1, n do rest[i - most] = sub(s, places[i] * SAID - SAID + 1, places[i] * SAID) end
  return first, concat(rest), bytes
end

local function drop_batch(q, b, most, whole_only) -- up to so many of it, the first that arrived; how many, false: too many
  local number = n7(b[2])
  local s = hget(PAST, 'B' .. number) or ''
  local ids, n = {}, 0
  for at = 1, #s, SAID do
    n = n + 1
    ids[n] = sub(s, at, at + 15)
  end
  local bytes, rest = weigh(number, n), false
  if n > most then
    if whole_only then return false end
    local whole = bytes
    ids, rest, bytes = split_batch(ids, s, most)
    hset(PAST, 'b' .. number, whole and struct.pack('>I4I7', n - most, whole - bytes) or false)
    n = most
  else
    hset(PAST, 'b' .. number, false)
    zrem(TIME, b[3])
  end
  hset(PAST, 'B' .. number, rest)
  if n == 0 then return 0 end
  if not bytes then
    bytes = 0
    local ends = call('HMGET', GONE.k, unpack(ids))
    for i = 1, n do
      if ends[i] then bytes = bytes + struct.unpack('>I4', ends[i], #ends[i] - 3) end
    end
  end
  N.bytes = N.bytes - bytes
  local till = b[1] + WINDOW
  local forgotten = till <= NOW
  local dropped, list = BATCHES.dropped, forgotten and BATCHES.forgotten or buried(till)
  local at, to = #dropped, #list
  for i = 1, n do
    local id = ids[i]
    dropped[at + i], list[to + i], JOBS[id] = id, id, false
  end
  q.kept = q.kept - n
  queue_changed(q)
  return n
end

local EVER = 2 ^ 53 - 1 -- later than any end, those that a clock that was set back has still before it included
local TAKEN_APART = 10 -- batches that a pass may take apart

local function prune_queue(q, left)
  local p, pruned, apart = q.p, 0, 0
  local function prune_while(before, most)
    local till = before.n
    if pruned >= most then return end -- far fewer than are to be kept: nothing to look at
    look_ahead(q, min(left, most - pruned))
    while left > 0 and pruned < most do
      local at, m = oldest(q, before)
      local b = first_batch(q, till)
      local finished = at and r7(at, 1)
      if b and (not at or b[1] <= finished) then
        local next_one = first_batch(q, till, b[3])
        -- What ended at one time goes in the order in which it arrived; and events are of single jobs.
        local mixed = b[1] == finished or (next_one and next_one[1] == b[1])
        if p.emit == 2 or BATCHES.read[b[2]] or (mixed and apart < TAKEN_APART) then
          apart = apart + 1
          take_apart(b)
          before.n = till
        else
          -- Which of a batch came first stands in all their heads: where only the pass ends, the next begins with it.
          local n = drop_batch(q, b, min(left, most - pruned), pruned > 0 and left < most - pruned)
          if n then pruned, left = pruned + n, left - n else left = 0 end
        end
      elseif m then
        drop(job(sub(m, -16)), 'prune')
        pruned, left = pruned + 1, left - 1
      else
        break
      end
    end
  end
  if p.retention_count then -- too many: the oldest of those that nothing needs
    local kept = q.kept
    for _, class in ipairs({'n', 'r', 'c'}) do kept = kept + zcount(TIME, 'k' .. q.pre .. class) end
    prune_while({n = EVER, r = EVER, c = EVER}, kept - p.retention_count)
  end
  local before = NOW - p.retention
  local with_result = NOW - max(p.retention, p.result_ttl)
  prune_while({n = before, c = before, r = with_result, d = NOW - p.dead_retention}, pruned + left)
  return pruned, left
end

local function drop_results(q, left)
  while left > 0 do
    local _, m = overdue(q, 'r', NOW - q.p.result_ttl)
    if not m then break end
    local j = job(sub(m, -16))
    unkeep(j)
    set_past(j, 'r', false)
    N.bytes, j.size = N.bytes - j.x.result, j.size - j.x.result
    j.x.result = nil
    j.x.kept = 'k'
    zadd(TIME, kept_name(j))
    touch(j)
    left = left - 1
  end
  return left
end

local function prune(queues, left)
  local pruned, n = 0, 0
  for i = 1, #queues do
    if left > 0 then
      examine_parents(queues[i])
      n, left = prune_queue(queues[i], left)
      pruned = pruned + n
    end
  end
  for i = 1, #queues do left = drop_results(queues[i], left) end
  return pruned, left
end
