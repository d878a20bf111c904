-- sweep: what only time brings about, at most `limit` items.
--
-- ARGV[2]  limit, every, whether dead letters stay
-- Returns  {too early, promoted, pruned, more, schedules due, time since the last pass, stepped back, reaped, moves,
--           overdue dead letters that stay}
-- Writes   meta first of all; everything else as the moves ask for
-- Cost     O(limit · log n + queues)
-- include: write, ending, handout, pruning, forgetting, schedules

local function by_number(one, other) return one.number < other.number end

local function reap_silent(limit) -- sessions that were not heard of for their TTL, as lost
  local silent, members, reaped = {}, zpage(TIME, 'A', limit), {}
  for i = 1, #members do
    if read7(members[i], 2) < N.live then silent[#silent + 1] = leases.session(sub(members[i], 9)) end
  end
  table.sort(silent, by_number)
  for i = 1, #silent do
    local s = silent[i]
    local detail = 'silent for ' .. string.format('%.0f', floor((N.live - s.seen) / 1000000)) .. ' s'
    ending.mark(s, $Cause.LOST, '{"kind":"lost","detail":"' .. detail .. '"}', '')
    reaped[i] = s.id
  end
  return reaped
end

local function return_leases(left) -- of sessions that have ended, in the order in which they were opened
  local ended, members = {}, zpage(LEASE, 'D', 100)
  for i = 1, #members do ended[i] = leases.session(sub(members[i], 2)) end
  table.sort(ended, by_number)
  for i = 1, #ended do
    if left > 0 then left = left - ending.return_leases(ended[i], min(left, $END_LEASES)) end
  end
  return left
end

local function end_overdue(left) -- deadline leases that ran out
  local cause = {kind = $Cause.DEADLINE, text = '{"kind":"deadline","detail":"not extended in time"}'}
  while left > 0 do
    local m = zfirst(TIME, 'V')
    if not m or read7(m, 2) > NOW then break end
    local j = jobs.get(sub(m, -16))
    leases.finish(j, rules.deadline(leases.facts(j)), false, cause)
    lifecycle.keep_or_remove(j)
    left = left - 1
  end
  return left
end

local function promote(all, limit)
  local moves = transitions.moves()
  local before = #moves
  local promoted = handout.promote_due(all, limit)
  for i = #moves, before + 1, -1 do moves[i] = nil end -- due jobs are only counted
  return promoted
end

local function expire(limit) -- how many
  local expired, members = {}, zpage(TIME, 'X', limit)
  for i = 1, #members do
    if read7(members[i], 2) <= NOW then expired[#expired + 1] = sub(members[i], 9) end
  end
  table.sort(expired, is_less) -- by arrival
  for i = 1, #expired do lifecycle.expire(jobs.get(sub(expired[i], -16))) end
  return #expired
end

local limit, every, keep_dead = unpack(decode(ARGV[2]))
local elapsed = N.swept >= 0 and NOW - N.swept or nil
local since = max(0, elapsed or 0)
if rules.is_early(elapsed, every, N.left ~= 0) then
  return {1, 0, 0, 0, 0, since, 0, {}, {}, {}}
end
local stepped_back = max(0, N.mark - NOW)
N.live = leases.liveness()
N.mark, N.swept = NOW, NOW

local all, left = queues.all(), limit
local fates = flows.left_to_sweep(limit + 1)
flows.collect_in(fates) -- ends that this pass brings about are told within its limit
transitions.record()
local reaped = reap_silent(left)
left = return_leases(left - #reaped)
left = end_overdue(left)
local promoted = promote(all, left)
left = left - promoted
left = left - expire(left)
left = left - flows.tell(fates, left)
local pruned
pruned, left = pruning.prune(all, left, keep_dead)
local overdue = keep_dead and pruning.overdue_letters(all) or {}
flows.collect_in(nil)
flows.leave_to_sweep(fates)
left = forgetting.small_records(left)
for i = 1, #all do
  handout.unpark(all[i], 100)
  if stepped_back > 0 then order.refresh_lanes(all[i]) end
  forgetting.idle_lanes(all[i])
end
N.left = (left == 0 or zfirst(LINK, 'F')) and 1 or 0
local due = schedules.is_due() and 1 or 0
flush(false)
return {0, promoted, pruned, N.left, due, since, stepped_back, reaped, transitions.moves(), overdue}
