-- The second half of every script that writes: nothing before this was written, and nothing in it can fail.
-- include: leases


local function flush_hash(h)
  local sets, dels = {}, {}
  for f in pairs(h.d) do
    local v = h.v[f]
    if v then
      sets[#sets + 1] = f
      sets[#sets + 1] = v
    else
      dels[#dels + 1] = f
    end
  end
  for from = 1, #sets, 2 * CHUNK do
    call('HSET', h.k, unpack(sets, from, min(from + 2 * CHUNK - 1, #sets)))
  end
  for from = 1, #dels, CHUNK do
    call('HDEL', h.k, unpack(dels, from, min(from + CHUNK - 1, #dels)))
  end
end

local function drop_fields(h, ids) -- many at once, which no table knows of
  for from = 1, #ids, CHUNK do
    call('HDEL', h.k, unpack(ids, from, min(from + CHUNK - 1, #ids)))
  end
end

local function flush_lexset(z)
  local adds, dels = {}, {}
  for m in pairs(z.gone) do dels[#dels + 1] = m end
  for m in pairs(z.new) do
    adds[#adds + 1] = 0
    adds[#adds + 1] = m
  end
  for m in pairs(z.back) do
    adds[#adds + 1] = 0
    adds[#adds + 1] = m
  end
  for from = 1, #dels, CHUNK do
    call('ZREM', z.k, unpack(dels, from, min(from + CHUNK - 1, #dels)))
  end
  for from = 1, #adds, 2 * CHUNK do
    call('ZADD', z.k, unpack(adds, from, min(from + 2 * CHUNK - 1, #adds)))
  end
end

local function list_in_flow(j)
  if not j.x.flow then return end
  local name = not j.dropped and LINK.name_in_flow(j) or nil
  if name ~= j.in_flow then
    if j.in_flow then zrem(LINK, j.in_flow) end
    if name then zadd(LINK, name) end
  end
  local all = 'W' .. j.x.flow .. NUL .. n7(j.arrival) .. j.id
  if j.dropped then zrem(LINK, all) elseif j.is_new then zadd(LINK, all) end
end

local function flush_arrivals()
  local new = {}
  for i = 1, NCHANGED do
    local j = CHANGED[i]
    if j.dropped then
      BATCHES.dropped[#BATCHES.dropped + 1] = j.id
    elseif j.is_new then
      new[#new + 1] = j.arrival
      new[#new + 1] = j.id
    end
  end
  local gone = BATCHES.dropped
  for from = 1, #gone, CHUNK do call('ZREM', HEAD.arrived, unpack(gone, from, min(from + CHUNK - 1, #gone))) end
  for from = 1, #new, 2 * CHUNK do call('ZADD', HEAD.arrived, unpack(new, from, min(from + 2 * CHUNK - 1, #new))) end
end

local function flush_events()
  for i = 1, #EVENTS do
    hset(LOG, N.log_end, EVENTS[i])
    N.log_end = N.log_end + 1
  end
  while N.log_end - N.log_first > EVENTS_KEPT do
    hset(LOG, N.log_first, false)
    N.log_first = N.log_first + 1
  end
end

-- Pages of ids (P), numbered, by the time until which something is remembered of them. M: the latest such time. A page of an
-- earlier one comes out of turn, as after a clock that was set back, and is found by its time (G).
local function flush_graves()
  local tills = {}
  for till in pairs(BURIED) do tills[#tills + 1] = till end
  if #tills == 0 then return end
  table.sort(tills)
  local latest = hget(GONE, 'M')
  latest = latest and r7(latest, 1) or 0
  for i = 1, #tills do
    local till, ids = tills[i], BURIED[tills[i]]
    for from = 1, #ids, 128 do
      local page = n7(N.gone_end)
      hset(GONE, 'P' .. page, n7(till) .. concat(ids, '', from, min(from + 127, #ids)))
      if till < latest then zadd(TIME, 'G' .. n7(till) .. page) end
      N.gone_end = N.gone_end + 1
    end
  end
  if tills[#tills] > latest then hset(GONE, 'M', n7(tills[#tills])) end
end

local function flush_places()
  for name, q in pairs(QUEUES) do
    if q then
      if q.touched then hset(SET, 'R' .. name, write_running(q)) end
      if q.fifo_touched then flush_fifo(q) end
    end
  end
  for at, l in pairs(LANES) do
    if l.fifo_touched then
      flush_fifo(l)
      l.touched = true
    end
    if l.touched then
      local empty = lane_empty(l)
      if empty and l.known then
        zrem(NAMES, 'L' .. at)
      elseif not empty and not l.known then
        zadd(NAMES, 'L' .. at)
      end
      if not empty or l.known then
        hset(LANE, 'l' .. at, not empty and write_lane(l) or false)
      end
    end
  end
  for at in pairs(RING_LIST) do
    local r = RINGS[at]
    hset(LANE, 't' .. at, r[4] and pack(r) or false)
  end
end

local function wakes() -- whom to tell, decided before anything is written
  local told = {}
  for name in pairs(ARMED) do
    local flag = hget(SET, 'A' .. name)
    if flag ~= 'A' then
      local waiting = flag == 'W' and zpage(NAMES, 'w' .. name .. NUL, 10) or {}
      told[#told + 1] = {name, waiting}
    end
  end
  return told
end

local function wake(told)
  for i = 1, #told do
    local name, waiting = told[i][1], told[i][2]
    local p, woken = #name + 2, false
    for k = 1, #waiting do
      -- A waiter is: when it came (7 bytes), its channel, NUL, its number. It may wait for other queues, too;
      -- it takes those entries away itself.
      local m = waiting[k]
      local split = string.find(m, NUL, p + 8, true)
      call('ZREM', NAMES.k, m)
      if call('PUBLISH', sub(m, p + 8, split - 1), sub(m, split + 1)) > 0 then
        woken = true
        break
      end
    end
    if not woken then call('HSET', SET.k, 'A' .. name, 'A') end
  end
end

local function flush(grows) -- grows: it may be refused when the server is at its memory limit
  for i = 1, NCHANGED do
    local j = CHANGED[i]
    list_in_flow(j)
    if not j.dropped then
      j.packed = write_head(j)
      hset(HEAD, j.id, j.packed)
      if j.said then hset(GONE, j.id, false) end
    end
  end
  BATCHES.flush()
  flush_events()
  flush_graves()
  flush_places()
  flush_sessions()
  local n = numbers()
  if n ~= N.before then hset(META, 'n', n) end
  local told = wakes()
  if not grows then call('HDEL', META.k, '-') end -- a shrinking write first: from then on a script may grow
  flush_hash(META)
  flush_hash(BODY)
  flush_hash(HEAD)
  flush_hash(SET)
  flush_hash(PAST)
  flush_hash(FIFO)
  flush_hash(LANE)
  flush_hash(KEY)
  flush_hash(SESS)
  flush_hash(GONE)
  flush_hash(LOG)
  drop_fields(HEAD, BATCHES.dropped)
  drop_fields(BODY, BATCHES.dropped)
  drop_fields(GONE, BATCHES.forgotten)
  flush_arrivals()
  for at, by in pairs(DELTAS) do
    if by ~= 0 and call('HINCRBY', COUNT.k, at, by) == 0 then call('HDEL', COUNT.k, at) end
  end
  flush_lexset(READY)
  flush_lexset(RING)
  flush_lexset(LEASE)
  flush_lexset(LINK)
  flush_lexset(TIME)
  flush_lexset(NAMES)
  wake(told)
  if (#ENDED > 0 or #EVENTS > 0) and call('PUBSUB', 'NUMSUB', CHANNEL)[2] > 0 then
    for from = 1, max(1, #ENDED), 1000 do
      call('PUBLISH', CHANNEL, concat(ENDED, '', from, min(from + 999, #ENDED)))
    end
  end
end
