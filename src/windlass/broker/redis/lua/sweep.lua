-- sweep: what only time brings about, at most `limit` items.
--
-- ARGV[2]  limit, every, all queues (their names come from the store: names D)
-- Returns  {too early, promoted, pruned, more, schedules due, time since the last pass, stepped back, reaped, moves}
-- Writes   meta first of all; everything else as the moves ask for
-- Cost     O(limit · log n + queues)
-- Near Lua's limit of 200 names in a function (those that its pieces share, and its own): a new one may need a piece.
-- include: ending, handout, forgetting
local function pass() -- a function of its own: Lua knows at most 200 names at a time
  local a = unpack_(ARGV[2])
  local limit, every = a[1], a[2]

  local function schedules_due()
    local m = zfirst(TIME, 'S')
    return m and r7(m, 2) <= NOW and 1 or 0
  end

  local since = N.swept >= 0 and max(0, NOW - N.swept) or 0
  if N.swept >= 0 and NOW - N.swept >= 0 and since < every and N.left == 0 then
    return {1, 0, 0, 0, 0, since, 0, {}, {}}
  end

  local stepped_back = max(0, N.mark - NOW)
  N.live = liveness()
  N.mark, N.swept = NOW, NOW

  local queues = all_queues()
  local fates = {at = 1}
  do
    local members = zpage(LINK, 'F', limit + 1)
    for i = 1, #members do
      fates[i] = {number = r7(members[i], 2), parent = sub(members[i], 9, 24), state = tonumber(sub(members[i], 25))}
    end
  end
  TELLING = fates -- ends that this pass brings about are told within its limit
  MOVES = {}
  local left = limit

  -- silent sessions, as lost; and the leases of those that have ended; in the order in which they were opened
  local function by_birth(one, other) return one[11] < other[11] end
  local reaped = {}
  do
    local silent, members = {}, zpage(TIME, 'A', left)
    for i = 1, #members do
      if r7(members[i], 2) < N.live then silent[#silent + 1] = session(sub(members[i], 9)) end
    end
    table.sort(silent, by_birth)
    for i = 1, #silent do
      local s = silent[i]
      local detail = 'silent for ' .. string.format('%.0f', floor((N.live - s[3]) / 1000000)) .. ' s'
      mark_ended(s, 'lost', '{"kind":"lost","detail":"' .. detail .. '"}', '')
      reaped[#reaped + 1] = s.id
    end
    left = left - #silent
    local ended = {}
    members = zpage(LEASE, 'D', 100)
    for i = 1, #members do ended[i] = session(sub(members[i], 2)) end
    table.sort(ended, by_birth)
    for i = 1, #ended do
      if left > 0 then left = left - return_leases(ended[i], min(left, 1000)) end
    end
  end

  -- deadline leases that ran out
  local cause = {'deadline', '{"kind":"deadline","detail":"not extended in time"}'}
  while left > 0 do
    local m = zfirst(TIME, 'V')
    if not m or r7(m, 2) > NOW then break end
    local j = job(sub(m, -16))
    end_lease(j, rule_deadline(j), false, cause)
    drop_if_unkept(j)
    left = left - 1
  end

  local before = #MOVES
  local promoted = promote_due(queues, left)
  left = left - promoted
  for i = #MOVES, before + 1, -1 do MOVES[i] = nil end -- due jobs are only counted

  do
    local expired, members = {}, zpage(TIME, 'X', left)
    for i = 1, #members do
      if r7(members[i], 2) <= NOW then expired[#expired + 1] = sub(members[i], 9) end
    end
    table.sort(expired, is_less) -- by arrival
    for i = 1, #expired do expire(job(sub(expired[i], -16))) end
    left = left - #expired
  end

  left = left - resolve_fates(fates, left)
  local pruned
  pruned, left = prune(queues, left)
  TELLING = nil
  keep_fates(fates)
  left = forget(left)
  for i = 1, #queues do
    unpark(queues[i], 100)
    if stepped_back > 0 then refresh_lanes(queues[i]) end
    forget_idle(queues[i])
  end
  N.left = (left == 0 or zfirst(LINK, 'F')) and 1 or 0
  local due = schedules_due()
  flush(false)
  return {0, promoted, pruned, N.left, due, since, stepped_back, reaped, MOVES}
end

return pass()
