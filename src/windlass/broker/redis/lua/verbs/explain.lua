-- explain: why a job is not running, the first reason that applies.
--
-- ARGV[2]  job
-- Returns  {state or -1, why, detail, next_in or -1, ahead, error}; an id in the detail is given as its 16 bytes
-- Cost     O(parents), or what is ahead up to 1,000 (of a fifo, at most 10,000 entries are looked at)
-- include: leases
local MOST = 1000
local j = jobs.get(decode(ARGV[2])[1])
if not j then return {-1, $Why.UNKNOWN, '', -1, 0, false} end
local q = j.kind.q

local function ahead_in_fifo() -- ready jobs before its number, and of lower bands
  local n, owner = 0, fifos.owner(q, j.kind.lane)
  for band, f in pairs(fifos.of(owner)) do
    if band < j.band then
      n = n + f[5]
    elseif band == j.band then
      fifos.each(owner, band, 10 * MOST, function(other, seq)
        if seq >= j.seq or n >= MOST then return false end
        if other then n = n + 1 end
      end)
    end
  end
  return n
end

local function count_until(members, counts) -- of members before its own
  local n = 0
  for i = 1, #members do
    local other = jobs.get(sub(members[i], -16))
    if other == j or n >= MOST then break end
    if counts(other) then n = n + 1 end
  end
  return n
end

local function ahead()
  if jobs.is_suspect(j) then
    return count_until(zpage(READY, 'S' .. q.pre, MOST), function(other) return other.kind.lane == j.kind.lane end)
  end
  if q.policy.sequence then
    local members = zpage(READY, 'Q' .. q.pre .. j.kind.lane .. NUL, 10 * MOST)
    return count_until(members, function(other) return other.state == $State.READY end)
  end
  local prefix = 'L' .. q.pre .. j.kind.lane .. NUL
  local n = call('ZLEXCOUNT', READY.k, '[' .. prefix, '(' .. prefix .. band_bytes(j.band) .. bytes7(j.seq))
  return n + ahead_in_fifo()
end

local function blocked()
  local open
  for _, edge in ipairs(flows.parents(j)) do
    if flows.is_open(edge[1], j, edge[2]) then
      local parent = jobs.get(edge[1])
      if parent and parent.state == $State.DEAD then return $Why.PARENT_DEAD, '' end
      open = open or edge[1]
    end
  end
  if open then return $Why.PARENTS, open end
  return $Why.FOLLOWS, ''
end

local function ready(before)
  local l = queues.lane(q, j.kind.lane)
  if q.paused then return $Why.QUEUE_PAUSED, '' end
  if l.paused then return $Why.LANE_PAUSED, '' end
  if q.policy.sequence then
    local head = order.head_of_line(q, j.kind.lane)
    if head ~= j then return $Why.SEQUENCE, head.id end
  end
  if q.policy.concurrency and q.running >= q.policy.concurrency then return $Why.QUEUE_CONCURRENCY, '' end
  local token = queues.token_in(q.bucket, q.policy.rate)
  if token > 0 then return $Why.QUEUE_RATE, '', token end
  local why = queues.parked(q, l)
  if why == $Parked.CONCURRENCY then return $Why.LANE_CONCURRENCY, '' end
  if why then return $Why.LANE_RATE, '', queues.token_in(l.bucket, queues.lane_rate(q, l)) end
  if not zfirst(LEASE, 'S' .. q.pre) then return $Why.NO_WORKER, '' end
  if jobs.is_suspect(j) then return $Why.SUSPECT, '' end
  return before > 0 and $Why.AHEAD or $Why.NEXT, ''
end

local why, detail, wait, before = nil, '', nil, 0
if jobs.is_finished(j.state) then
  why, detail = $Why.FINISHED, j.rare.reason or ''
elseif j.state == $State.RUNNING then
  why, detail = $Why.RUNNING, j.session or ''
elseif j.state == $State.BLOCKED then
  why, detail = blocked()
elseif j.state == $State.SCHEDULED then
  wait = max(0, j.due - NOW)
  why = j.attempt > 0 and $Why.RETRYING or $Why.NOT_DUE
  if j.rare.hold_key then why, detail = $Why.HELD, j.rare.hold_reason end
else
  before = min(MOST, ahead())
  why, detail, wait = ready(before)
end
return {j.state, why, detail, wait or -1, before, j.rare.error and jobs.past(j, 'e') or false}
