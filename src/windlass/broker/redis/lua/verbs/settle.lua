-- settle: end leases, each judged by itself, then answer the ask that came with them.
--
-- ARGV[2]  settlements: fence, runtime or false, result or false, then unless it is plainly done: outcome, delay, error or
--          false, hold key or false, hold reason, a packet of calls to spawn (see calls.lua), or false, or why they are refused
-- ARGV[3]  their jobs, 16 bytes each   ARGV[4]  an ask (see handout.lua), or ""
-- Returns  {answers, what claim returns or false}; an answer: 1 (applied, done) or {verdict, outcome, state or -1, why}
-- Writes   as claim; past and time for what is kept of an end, gone for what is not kept
-- Cost     O(items · log n), 100 dependents told; then as claim
-- include: write, accept, handout, plain_jobs

local function refusal(packet) -- why the children cannot be kept; else the group that they are
  if type(packet) == 'string' then return packet end
  local groups, all = calls.read(packet)
  calls.look_up(all)
  local refused = calls.refusals(groups[1], true)
  return #refused > 0 and refused[1][2], groups[1]
end

local function set_result(j, result)
  if j.rare.result then
    N.bytes, j.size = N.bytes - j.rare.result, j.size - j.rare.result
    jobs.set_past(j, 'r', false)
    j.rare.result = nil
  end
  if result then
    j.rare.result = #result
    N.bytes, j.size = N.bytes + #result, j.size + #result
    jobs.set_past(j, 'r', result)
  end
end

local function hold(j, key, reason)
  local rare = j.rare
  if not rare.hold_key then rare.hold_since, rare.hold_times = NOW, 0 end
  rare.hold_key, rare.hold_reason, rare.hold_times = key, reason, rare.hold_times + 1
end

local function settle(id, item)
  local fence, runtime, result, outcome, delay, err, key, reason, spawn = unpack(item)
  outcome = outcome or $Outcome.DONE
  local j = jobs.get(id)
  if not leases.is_live(j, fence) then return leases.late(id, fence) end
  local why, children = nil, nil
  if spawn then
    why, children = refusal(spawn)
    if why then return {$Verdict.REFUSED, '', -1, why} end
  end
  local ruling = rules.settlement(outcome ~= $Outcome.DONE and leases.facts(j), outcome, delay)
  if runtime then queues.timed(j.kind.task) end
  if ruling.outcome == $Outcome.DONE then
    if result or j.rare.result then set_result(j, result) end
  elseif ruling.outcome == $Outcome.HOLD then
    hold(j, key, reason)
  end
  local unstarted = (outcome == $Outcome.RELEASE or outcome == $Outcome.HOLD) and not runtime
  leases.finish(j, ruling, unstarted, nil, runtime, err)
  if children then accept.all(children) end -- after the end, so that a job may spawn its successor under its own key
  local answer = 1
  if ruling.outcome ~= $Outcome.DONE then answer = {$Verdict.APPLIED, ruling.outcome, j.state, ''} end
  lifecycle.keep_or_remove(j)
  return answer
end

local items, ids, answers = decode(ARGV[2]), {}, {}
for i = 1, #items do ids[i] = sub(ARGV[3], 16 * i - 15, 16 * i) end
leases.load(ids)
for i = 1, #items do
  local item = items[i]
  local plain = not item[3] and not item[4]
  answers[i] = plain and plain_jobs.settle(ids[i], item[1], item[2]) or settle(ids[i], item)
end
local claimed = ARGV[4] ~= '' and handout.claim(decode(ARGV[4]))
flush(false)
return {answers, claimed and handout.answer(claimed)}
