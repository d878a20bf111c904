-- settle: end leases, each judged by itself, then answer the ask that came with them.
--
-- ARGV[2]  settlements (see settling.lua), as bytes only of different jobs   ARGV[3]  an ask (see handout.lua), or ""   ARGV[4 …]  results
-- Returns  {answers, or 1 if every one is applied and done; what claim returns or false}
-- Writes   as claim; past and time for what is kept of an end, gone for what is not kept; lane, ring, log
-- Cost     O(items), then as claim; a plain job that is not kept is 3 fields, one that is kept 1 and its share of a batch
-- otherwise: settle_any
-- include: plain_claim
local WEIGHED = 16 -- a batch of so many is kept with its weight: of fewer it would take more memory than time

local said, ask = ARGV[2], ARGV[3] ~= '' and unpack_(ARGV[3])
if not N or string.byte(said) ~= 1 or (#said == 1 and not ask) then return otherwise() end

local ids, fences, runtimes, results, n = {}, {}, {}, {}, 0
local unpack_bytes, given = struct.unpack, 3
for at = 2, #said, 33 do
  local id, fence, runtime, result = unpack_bytes('>c16I8I8B', said, at)
  n = n + 1
  ids[n], fences[n], runtimes[n] = id, fence, runtime
  if result == 1 then
    given = given + 1
    results[n] = ARGV[given]
  end
end
local said_of = n > 0 and call('HMGET', GONE, unpack(ids)) or {}
-- Heads of those that were claimed by the long way, and of those with a result, which adds to them.
local heads, wanted, places = {}, {}, {}
for i = 1, n do
  local said = said_of[i]
  if not said or string.byte(said) ~= 108 then
    said_of[i] = false
    wanted[#wanted + 1], places[#wanted + 1] = ids[i], i
  elseif results[i] then
    wanted[#wanted + 1], places[#wanted + 1] = ids[i], i
  end
end
if #wanted > 0 then
  local got = call('HMGET', HEAD, unpack(wanted))
  for k = 1, #wanted do
    local h, i = got[k], places[k]
    if not h then return otherwise() end
    if not said_of[i] then
      local state, session_end = string.byte(h), 36
      if state ~= RUNNING or string.byte(h, 4) ~= 0 then return otherwise() end
      session_end = 36 + unpack_bytes('>I2', h, 34)
      local _, size, _, _, _, names = unpack_bytes('>I8I4I8I8I8I2c0', h, session_end)
      said_of[i] = 'l' .. sub(h, 1, session_end - 1) .. struct.pack('>I4', size) .. names
      -- From now on what is said of it stands beside its head.
      h = string.char(RDY, 1) .. sub(h, 3, 17) .. sub(h, session_end)
      if not results[i] then put(HEAD, ids[i], h) end
    end
    heads[i] = h
  end
end
local queues, replies, session, s = {}, {}, nil, nil
if ask then session = ask[4] end
-- What was said of a job begins with what a claim said of many; its names follow. The few beginnings of each kind are
-- read, and how many have them; jobs without a lane are known by all that was said.
local records, fronts, front_of, per, lane_of, told = {}, {}, {}, nil, {}, false
local opening, opened, opener = nil, 0, nil -- how a job before began, up to its lane
local before, lane -- what was said of the job before, which its lane's next one shares; its lane
for i = 1, n do
  local said = said_of[i]
  local f = records[said]
  if not f then
    if said == before then
      f = opener
    elseif opening and sub(said, 1, opened) == opening then
      f, lane = opener, sub(said, opened + 1)
    else
      session = session or unpack_bytes('>I2c0', said, 35)
      local width = 40 + #session
      local front = sub(said, 1, width)
      per = kind_of(sub(said, width + 1), per)
      if not per then return otherwise() end
      f = per.fronts[front]
      if not f then
        local _, _, _, _, unsettle, _, attempt, fence, claimed, asked, holder, size = unpack_bytes('>BBBBBBI4I8I8I8I2c0I4',
          said)
        if unsettle ~= 0 or holder ~= session then return otherwise() end
        f = {per = per, fence = fence, asked = asked, size = size, n = 0, said = front, ended = false, attempt = attempt,
          claimed = claimed, events = false}
        per.fronts[front], fronts[#fronts + 1] = f, f
      end
      if not per.q then
        local q = queues[per.queue] or plain_queue(per.queue)
        if not q or not (q.laned or q.unlimited) then return otherwise() end
        queues[per.queue], per.q, q.touched, told = q, q, true, told or q.emits
      end
      opened, opener = width + per.size, f
      opening, lane = sub(said, 1, opened), sub(said, opened + 1)
    end
    local q = f.per.q
    if q.laned then
      local ended = q.ended
      if not ended then
        ended = {}
        q.ended, q.lanes = ended, {}
      end
      local so_far = ended[lane]
      if not so_far then q.lanes[#q.lanes + 1] = lane end
      ended[lane], before = (so_far or 0) + 1, said
      if q.emits then lane_of[i] = lane end
    elseif lane ~= '' then
      return otherwise()
    else
      records[said] = f
    end
  end
  if f.fence ~= fences[i] then return otherwise() end
  f.n, front_of[i] = f.n + 1, f
end
for i = 1, #fronts do
  local f = fronts[i]
  local q = f.per.q
  f.per.n, q.running, q.bytes = f.per.n + f.n, q.running - f.n, (q.bytes or 0) + f.n * f.size
  replies[f.asked] = (replies[f.asked] or 0) + f.n
end
s = session and session_of(session)
if not s or s.ended then return otherwise() end
if told then -- an event says how long a job waited, and its head when it was due
  wanted, places = {}, {}
  for i = 1, n do
    if not heads[i] and front_of[i].per.q.emits then wanted[#wanted + 1], places[#wanted + 1] = ids[i], i end
  end
  local got = #wanted > 0 and call('HMGET', HEAD, unpack(wanted)) or {}
  for k = 1, #wanted do
    if not got[k] then return otherwise() end
    heads[places[k]] = got[k]
  end
end

for _, q in pairs(queues) do
  if q.lanes and not lanes.end_runs(q, q.lanes, q.ended) then return otherwise() end
end

local kept, graves, ngraves, emptied = {n = 0}, {}, 0, {}
local till = NOW + CTX[3]
count_moves(RUNNING, DONE)
local gone, ngone, fresh = {}, 0, {} -- what is said of them from now on; of whom nothing is
for i = 1, #fronts do
  local f = fronts[i]
  local q = f.per.q
  if q.unkept then
    q.batch = 0
  elseif not q.batch then
    N[5] = N[5] + 1
    q.batch = N[5]
  end
  f.ended = 'e\7' .. sub(f.said, 3, 36 + #session) .. struct.pack('>I8I8I4', NOW, q.batch, f.size)
end
for i = 1, n do
  local f, id, result = front_of[i], ids[i], results[i]
  local per = f.per
  local q = per.q
  if runtimes[i] > 0 and not per.timed then
    if not is_timed(per.task) then
      put(SET, 'T' .. per.task, '1')
      TIMED[per.task] = true
    end
    per.timed = true
  end
  if q.emits then -- what an event says of most jobs of a claim is the same; see transitions.lua
    local lane, events = lane_of[i] or '', f.events or {}
    local said, waited = events[lane], f.claimed - unpack_bytes('>I8', heads[i], 38)
    if not said then
      said = '\157' .. pack(NOW, per.task, per.queue, lane, 'done', RUNNING, DONE, false, 'done', f.attempt, f.fence)
      events[lane], f.events = said, events
    end
    put(LOG, N[8], id .. said .. pack(runtimes[i] > 0 and runtimes[i] - 1, waited > 0 and waited or 0))
    N[8] = N[8] + 1
  end
  if result and not (q.unkept and not q.results) then
    -- What a result adds is not for bytes: this head is written as the long way does.
    local h = heads[i]
    local _, _, _, _, _, _, attempt, fence, claimed = unpack_bytes('>BBBBBBI4I8I8', said_of[i])
    local seq, size, arrival, due, accepted, names, cold = unpack_bytes('>I8I4I8I8I8I2c0', h, 18)
    local a = unpack_(sub(h, cold, -9))
    local x = a[7] or {}
    x.finished, x.started, x.kept, x.result = NOW, 1, 'k', #result
    a[4], a[7], N[7] = 1, x, N[7] + #result
    put(PAST, id .. 'd', pack({{fence, attempt, session, claimed, NOW, 'done', true, false,
      runtimes[i] > 0 and runtimes[i] - 1, false}}))
    put(PAST, id .. 'r', result)
    put(HEAD, id, struct.pack('>BBBBBI4I8', DONE, 0, 0, 1, string.byte(h, 5), attempt, fence) ..
      struct.pack('>I8I4I8I8I8I2', seq, size + #result, arrival, due, accepted, #names) .. names .. pack(a) .. sub(h, -8))
    fresh[#fresh + 1], q.bytes = id, q.bytes - f.size
    local k = kept.n
    kept[k + 1], kept[k + 2], kept.n = 0, 'k' .. q.pre .. 'r' .. struct.pack('>I7I7', NOW, arrival) .. id, k + 2
  else
    gone[ngone + 1], gone[ngone + 2] = id, f.ended
    ngone = ngone + 2
    if q.unkept then
      N[7] = N[7] - f.size
      ngraves = ngraves + 1
      graves[ngraves] = id
    else
      local list = q.ends or {}
      list[#list + 1], q.ends = i, list
    end
  end
end
for _, q in pairs(queues) do
  local list = q.ends
  if list then
    local ends = said
    if #list == n then
      ends = sub(said, 2)
    else
      for k = 1, #list do list[k] = sub(said, list[k] * 33 - 31, list[k] * 33 + 1) end
      ends = concat(list)
    end
    put(PAST, struct.pack('>BI7', 66, q.batch), ends)
    if #list >= WEIGHED then put(PAST, struct.pack('>BI7', 98, q.batch), struct.pack('>I4I7', #list, q.bytes)) end
    q.kept = q.kept + #list
    local k = kept.n
    kept[k + 1], kept[k + 2], kept.n = 0, struct.pack('>Bc0I7I7', 98, q.pre, NOW, q.batch), k + 2
  end
end
for at = N[9], N[8] - CTX[4] - 1 do
  remove(LOG, at)
  N[9] = at + 1
end
if ngraves > 0 then
  graves.n = ngraves
  HDELS[HEAD], HDELS[BODY] = graves, graves
end
if ngraves > 0 and till == NOW then -- nothing is remembered of them
  local k = 0
  for i = 1, ngone, 2 do
    if sub(gone[i + 1], -12, -5) == '\0\0\0\0\0\0\0\0' then
      fresh[#fresh + 1] = gone[i]
    else
      gone[k + 1], gone[k + 2] = gone[i], gone[i + 1]
      k = k + 2
    end
  end
  for i = ngone, k + 1, -1 do gone[i] = nil end
  ngone, ngraves = k, 0
end
if ngone > 0 then
  gone.n = ngone
  HSETS[GONE] = gone
end
if #fresh > 0 then
  fresh.n = #fresh
  HDELS[GONE] = fresh
end
if ngraves > 0 then -- as `flush_graves`
  local latest = call('HGET', GONE, 'M')
  local out_of_turn = latest and struct.unpack('>I7', latest) > till
  if not out_of_turn then put(GONE, 'M', struct.pack('>I7', till)) end
  for from = 1, ngraves, 128 do
    local page = struct.pack('>I7', N[11])
    put(GONE, 'P' .. page, struct.pack('>I7', till) .. concat(graves, '', from, math.min(from + 127, ngraves)))
    if out_of_turn then
      local k = kept.n
      kept[k + 1], kept[k + 2], kept.n = 0, struct.pack('>BI7', 71, till) .. page, k + 2
    end
    N[11] = N[11] + 1
  end
end
for asked, ended in pairs(replies) do
  local name = struct.pack('>Bc0BI7', 76, session, 0, asked)
  local r = call('HGET', SESS, name)
  local live = struct.unpack('>I2', r) - ended
  if live > 0 then
    put(SESS, name, struct.pack('>I2', live) .. sub(r, 3))
  else
    remove(SESS, name)
    emptied[#emptied + 1] = name
  end
end
s.leases = s.leases - n

local out, asked = nil, {}
if ask then
  out, asked = plain_claim(ask, s, queues)
  if not out then return otherwise() end
end
for _, q in pairs(queues) do
  if q.touched and not q.saved then save_running(q) end
  if q.lanes and not q.asked and not q.paused and (q.entered or range(RING, 'R' .. q.pre)) then
    q.armed = true
    waiters(q)
    asked[#asked + 1] = q
  end
end
save_session(s, session)
if lanes then lanes.save() end
call('HDEL', META, '-') -- a shrinking write first: from then on a script may grow
write()
if lanes then lanes.write() end
for from = 1, graves.n or 0, 1000 do call('ZREM', ARRIVED, unpack(graves, from, math.min(from + 999, graves.n))) end
for from = 1, kept.n, 2000 do call('ZADD', TIME, unpack(kept, from, math.min(from + 1999, kept.n))) end
if #emptied > 0 then call('ZREM', LEASE, unpack(emptied)) end
if out and out.reply then call('ZADD', LEASE, 0, out.reply) end
for i = 1, #asked do
  if asked[i].armed then wake(asked[i]) end
end
if n > 0 and call('PUBSUB', 'NUMSUB', CTX[6])[2] > 0 then call('PUBLISH', CTX[6], concat(ids)) end
return {1, out or false}
