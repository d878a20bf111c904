-- Settling: words about a lease, judged by its fence.
--
-- A settlement: 1 job, 2 fence, 3 outcome, 4 delay, 5 runtime or false, 6 error or false, 7 result or false,
-- 8 hold key or false, 9 hold reason, 10 calls to spawn, or false, or why they are refused
-- An answer: {verdict, outcome, state or -1, why}
-- include: flush, accept

local function late(id, fence) -- the answer to a word about a lease that is not live
  local j = job(id)
  if not j then
    local t = tombstone(id)
    if not t then return {'gone', '', -1, ''} end
    if t[3] == fence and t[4] then return {'already', t[4], t[1], ''} end
    return {'stale', '', -1, ''}
  end
  local all = j.ends > 0 and unpack_(past(j, 'd')) or {}
  for i = 1, #all do
    if all[i][1] == fence and all[i][7] then return {'already', all[i][6], j.state, ''} end
  end
  return {'stale', '', -1, ''}
end

local function settle(item)
  local j = job(item[1])
  if not is_live(j, item[2]) then return late(item[1], item[2]) end
  local outcome, runtime, x = item[3], item[5], j.x
  if type(item[10]) == 'string' then return {'refused', '', -1, item[10]} end
  if item[10] then
    look_up(item[10])
    local refused = refusals(item[10], true)
    if #refused > 0 then return {'refused', '', -1, refused[1][2]} end
  end
  local ruling = rule_settlement(j, outcome, item[4])
  if runtime and not hget(SET, 'T' .. j.task) then hset(SET, 'T' .. j.task, '1') end
  if ruling[1] == 'done' then
    if x.result then
      N.bytes = N.bytes - x.result
      j.size = j.size - x.result
      set_past(j, 'r', false)
      x.result = nil
    end
    if item[7] then
      x.result = #item[7]
      j.size = j.size + x.result
      N.bytes = N.bytes + x.result
      set_past(j, 'r', item[7])
    end
  elseif ruling[1] == 'hold' then
    if not x.hold_key then x.hold_since, x.hold_times = NOW, 0 end
    x.hold_key, x.hold_reason, x.hold_times = item[8], item[9], x.hold_times + 1
  end
  end_lease(j, ruling, (outcome == 'release' or outcome == 'hold') and not runtime, nil, runtime, item[6], item[10])
  -- After the end, so that a job may spawn its successor under its own key.
  if item[10] then accept(item[10]) end
  local answer = {'applied', ruling[1], j.state, ''}
  drop_if_unkept(j, ruling[1])
  return answer
end

local function load_leases(ids)
  load_jobs(ids)
  local gone = {}
  for i = 1, #ids do
    if not HEAD.v[ids[i]] then gone[#gone + 1] = ids[i] end
  end
  if #gone > 0 then hload(GONE, gone) end
end
