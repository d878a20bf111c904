-- get: jobs by id, with everything that is kept of them.
--
-- ARGV[2]  ids
-- Returns  per job: false, or {head, body, parent is dead, deliveries, error, result, after, memos, lines …}, or of one
--          that is not kept {tombstone}
-- Cost     O(ids + parents of blocked ones)
-- include: flows
local function has_dead_parent(j)
  for _, edge in ipairs(flows.parents(j)) do
    local parent = jobs.get(edge[1])
    if parent and parent.state == $State.DEAD and flows.is_open(edge[1], j, edge[2]) then return true end
  end
end

local ids, out = decode(ARGV[2]), {}
jobs.load(ids)
for i = 1, #ids do
  local j = jobs.get(ids[i])
  local t = not j and jobs.tombstone(ids[i])
  out[i] = t and {encode(t)} or false
  if j then
    local fields = {j.id .. 'd', j.id .. 'e', j.id .. 'r', j.id .. 'a', j.id .. 'm'}
    local lines = j.rare.logs or 0
    for n = max(0, lines - $LOG_LINES), lines - 1 do fields[#fields + 1] = j.id .. 'l' .. n % $LOG_LINES end
    local dead = j.state == $State.BLOCKED and has_dead_parent(j)
    out[i] = {hget(HEAD, j.id), hget(BODY, j.id), dead and 1 or 0, unpack(call('HMGET', PAST.k, unpack(fields)))}
  end
end
return out
