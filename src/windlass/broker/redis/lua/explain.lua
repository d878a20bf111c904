-- explain: why a job is not running, the first reason that applies.
--
-- ARGV[2]  job
-- Returns  {state or -1, why, detail, next_in or -1, ahead, error}; an id in the detail is given as its 16 bytes
-- Cost     O(parents), or what is ahead up to 1,000 (of a fifo, at most 10,000 entries are looked at)
-- include: leases
local MOST = 1000
local a = unpack_(ARGV[2])
local j = job(a[1])
if not j then return {-1, 'no such job', '', -1, 0, false} end
local q = queue(j.queue)

local function ahead_in_fifo(seq) -- live entries before this place; and of lower bands
  local n, looked = 0, 0
  local owner = fifo_owner(q, j.lane)
  for band, f in pairs(fifos(owner)) do
    if band < j.band then
      n = n + f[5]
    elseif band == j.band then
      for c = f[1], f[3] do
        local s = n < MOST and looked < 10000 and hget(FIFO, chunk_name(owner, band, c)) or ''
        for at = (c == f[1] and f[2] or 0) * ENTRY, #s - ENTRY, ENTRY do
          local place = r7(s, at + 1)
          if place >= seq then break end
          local other = job(sub(s, at + 8, at + 23))
          looked = looked + 1
          if other and other.state == RDY and other.place == IN_FIFO and other.seq == place then n = n + 1 end
        end
      end
    end
  end
  return n
end

local function ahead()
  if is_suspect(j) then
    local n, members = 0, zpage(READY, 'S' .. q.pre, MOST)
    for i = 1, #members do
      local other = job(sub(members[i], -16))
      if other == j then break end
      if other.lane == j.lane then n = n + 1 end
    end
    return n
  end
  if q.p.sequence then
    local n, members = 0, zpage(READY, 'Q' .. q.pre .. j.lane .. NUL, 10 * MOST)
    for i = 1, #members do
      local other = job(sub(members[i], -16))
      if other == j or n >= MOST then break end
      if other.state == RDY then n = n + 1 end
    end
    return n
  end
  local p = 'L' .. q.pre .. j.lane .. NUL
  local n = call('ZLEXCOUNT', READY.k, '[' .. p, '(' .. p .. b6(j.band) .. n7(j.seq))
  return n + ahead_in_fifo(j.seq)
end

local function blocked()
  local open
  for _, edge in ipairs(parents_of(j)) do
    if zhas(LINK, edge_name(edge[1], j, edge[2])) then
      local parent = job(edge[1])
      if parent and parent.state == DEAD then return 'a parent is dead: replay or discard it', '' end
      open = open or edge[1]
    end
  end
  if open then return 'its parents are not done', open end
  return 'the job before it under its key is running', ''
end

local function ready(before)
  local l = lane_of(q, j.lane)
  if q.paused then return 'its queue is paused', '' end
  if l.p then return 'its lane is paused', '' end
  if q.p.sequence then
    local head = head_of_line(q, j.lane)
    if head ~= j then return 'an earlier job of its lane is not finished', head.id end
  end
  if q.p.concurrency and q.running >= q.p.concurrency then return 'its queue is at its concurrency limit', '' end
  local token = token_in(q.bucket, q.p.rate)
  if token > 0 then return 'its queue is at its rate', '', token end
  local why = parked(q, l)
  if why == 'concurrency' then return 'its lane is at its concurrency limit', '' end
  if why then return 'its lane is at its rate', '', token_in(l.b, lane_rate(q, l)) end
  if not zfirst(LEASE, 'S' .. q.pre) then return 'no live worker serves its queue', '' end
  if is_suspect(j) then return 'it crashed its workers and waits to run alone', '' end
  return before > 0 and 'jobs ahead of it in its lane go first' or 'it is first in its lane', ''
end

local why, detail, wait, before = nil, '', nil, 0
if j.state >= DONE then
  why, detail = 'it has finished', j.x.reason or ''
elseif j.state == RUNNING then
  why, detail = 'it is running', j.session or ''
elseif j.state == BLOCKED then
  why, detail = blocked()
elseif j.state == SCHEDULED then
  wait = max(0, j.due - NOW)
  why = j.attempt > 0 and 'it failed and waits for its next attempt' or 'it is not due'
  if j.x.hold_key then why, detail = 'no worker can run it', j.x.hold_reason end
else
  before = min(MOST, ahead())
  why, detail, wait = ready(before)
end
return {j.state, why, detail, wait or -1, before, j.x.error and past(j, 'e') or false}
