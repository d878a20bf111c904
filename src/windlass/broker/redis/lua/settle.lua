-- settle: end leases, each judged by itself, then answer the ask that came with them.
--
-- ARGV[2]  settlements (see settling.lua)   ARGV[3]  an ask (see handout.lua), or ""   ARGV[4 …]  results
-- Returns  {answers, or 1 if every one is applied and done; what claim returns or false}
-- Writes   as claim; past and time for what is kept of an end, gone for what is not kept; lane and ring
-- Cost     O(items), then as claim; a plain job that is not kept is 3 fields, one that is kept 2 fields and a member
-- otherwise: settle_any
-- include: plain_claim
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
local heads = n > 0 and call('HMGET', HEAD, unpack(ids)) or {}
local queues, replies, twice, session, s = {}, {}, {}, nil, nil
if ask then session = ask[4] end
local pers, sizes, ats = {}, {}, {}
for i = 1, n do
  local h = heads[i]
  if not h then return otherwise() end
  local state, _, _, unsettle, _, _, fence = unpack_bytes('>BBBBBI4I8', h)
  if state ~= RUNNING or unsettle ~= 0 or fence ~= fences[i] then return otherwise() end
  local _, asked, holder, _, size, arrival, _, _, names = unpack_bytes('>I8I8I2c0I8I4I8I8I8I2c0', h, 18)
  session = session or holder
  -- two words about one job: the second is judged by what the first left
  if holder ~= session or twice[ids[i]] then return otherwise() end
  twice[ids[i]] = true
  local per = read_names(names)
  if not per.q then
    local q = queues[per.queue] or plain_queue(per.queue)
    if not q or (q.laned and '' or per.lane) ~= '' or not (q.laned or q.unlimited) then return otherwise() end
    queues[per.queue], per.q, q.touched = q, q, true
    if q.laned then
      q.lanes = q.lanes or {}
      q.lanes[#q.lanes + 1] = per.lane
    end
  end
  per.n = per.n + 1
  pers[i], sizes[i], ats[i] = per, size, arrival
  replies[asked] = (replies[asked] or 0) + 1
end
s = session and session_of(session)
if not s or s.ended then return otherwise() end

for _, q in pairs(queues) do
  if q.lanes and not lanes.load(q, q.lanes, #q.lanes) then return otherwise() end
end

local kept, graves, ngraves, emptied = {n = 0}, {}, 0, {}
local till, grave_of, grave = NOW + CTX[3], nil, nil
for _, per in pairs(NAMES_READ) do
  per.q.running, per.tally.n = per.q.running - per.n, per.tally.n + per.n
  if per.q.laned then
    local l = lanes.by_name[per.q.pre .. per.lane]
    l[4] = l[4] - per.n
    lanes.touch(l)
    lanes.enter_if_open(l)
  end
end
count_moves(RUNNING, DONE)
for i = 1, n do
  local per, id, result = pers[i], ids[i], results[i]
  local q = per.q
  if runtimes[i] > 0 and not is_timed(per.task) then
    put(SET, 'T' .. per.task, '1')
    TIMED[per.task] = true
  end
  if q.unkept and not (result and q.results) then
    N[7] = N[7] - sizes[i]
    ngraves = ngraves + 1
    graves[ngraves] = id
    if till > NOW then
      if grave_of ~= fences[i] then
        grave_of, grave = fences[i], 't' .. pack({DONE, false, fences[i], 'done', NOW, till})
      end
      put(GONE, id, grave)
    end
  else
    local h = heads[i]
    local after = 36 + #session
    if result then
      -- What a result adds is not for bytes: this head is written as the long way does.
      local _, _, _, _, _, attempt, fence, claimed = unpack_bytes('>BBBBBI4I8I8', h)
      local seq, size, arrival, due, accepted, names, cold = unpack_bytes('>I8I4I8I8I8I2c0', h, after)
      local a = unpack_(sub(h, cold, -2))
      local x = a[7] or {}
      x.finished, x.started, x.kept, x.result = NOW, 1, 'k', #result
      a[4], a[7], N[7] = 1, x, N[7] + #result
      put(PAST, id .. 'd', pack({{fence, attempt, session, claimed, NOW, 'done', true, false,
        runtimes[i] > 0 and runtimes[i] - 1, false}}))
      put(PAST, id .. 'r', result)
      put(HEAD, id, struct.pack('>BBBBBI4I8', DONE, 0, 0, 1, string.byte(h, 5), attempt, fence) ..
        struct.pack('>I8I4I8I8I8I2', seq, size + #result, arrival, due, accepted, #names) .. names .. pack(a) .. sub(id, -1))
    else
      put(HEAD, id, '\7' .. sub(h, 2, after - 1) .. struct.pack('>I8I8', NOW, runtimes[i]) .. sub(h, after))
    end
    local k = kept.n
    kept[k + 1], kept[k + 2], kept.n = 0, 'k' .. q.pre .. (result and 'r' or 'n') .. struct.pack('>I7I7', NOW, ats[i]) .. id, k + 2
  end
end
if ngraves > 0 then
  graves.n = ngraves
  HDELS[HEAD], HDELS[BODY] = graves, graves
  if till == NOW then ngraves = 0 end
end
for from = 1, ngraves, 128 do
  put(GONE, 'P' .. struct.pack('>I7', N[11]), struct.pack('>I7', till) .. concat(graves, '', from, math.min(from + 127, ngraves)))
  N[11] = N[11] + 1
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
for from = 1, kept.n, 2000 do call('ZADD', TIME, unpack(kept, from, math.min(from + 1999, kept.n))) end
if #emptied > 0 then call('ZREM', LEASE, unpack(emptied)) end
if out and out.reply then call('ZADD', LEASE, 0, out.reply) end
for i = 1, #asked do
  if asked[i].armed then wake(asked[i]) end
end
if n > 0 and call('PUBSUB', 'NUMSUB', CTX[6])[2] > 0 then call('PUBLISH', CTX[6], concat(ids)) end
return {1, out or false}
