-- settle: end leases, each judged by itself, then answer the ask that came with them.
--
-- ARGV[2]  settlements (see settling.lua)   ARGV[3]  an ask (see handout.lua), or ""
-- Returns  {answers, or 1 if every one is applied and done; what claim returns or false}
-- Writes   as claim; past and time for what is kept of an end, gone for what is not kept
-- Cost     O(items), then as claim; a plain job that is not kept is 3 fields, one that is kept 2 fields and a member
-- otherwise: settle_any
-- include: plain_claim
local items = unpack_(ARGV[2])
local ask = ARGV[3] ~= '' and unpack_(ARGV[3])
if not N or (#items == 0 and not ask) then return otherwise() end

local ids, queues, session, s, replies = {}, {}, nil, nil, {}
for i = 1, #items do
  if items[i][3] ~= 'done' or items[i][10] then return otherwise() end
  ids[i] = items[i][1]
end
local heads = #ids > 0 and call('HMGET', HEAD, unpack(ids)) or {}
if ask then session = ask[4] end
for i = 1, #ids do
  local h = heads[i] and unpack_(heads[i])
  if not h or h[1] ~= RUNNING or h[8] ~= items[i][2] or not h[19] or h[15] > 0 then return otherwise() end
  local x = h[23]
  if h[4] ~= '' or (x and (x.key or x.children or x.after or x.memos or x.cancel or x.deadline or x.logs or x.result or
      x.hold_key or x.error)) then
    return otherwise()
  end
  session = session or h[19]
  if h[19] ~= session then return otherwise() end
  heads[i] = h
  local q = queues[h[2]] or plain_queue(h[2])
  if not q or not q.unlimited then return otherwise() end
  queues[h[2]] = q
  local name = 'L' .. h[19] .. NUL .. n7(h[20])
  replies[name] = (replies[name] or 0) + 1
end
s = session and session_of(session)
if not s or s[1] then return otherwise() end

-- two words about one job: the second is judged by what the first left
local twice = {}
for i = 1, #ids do
  if twice[ids[i]] then return otherwise() end
  twice[ids[i]] = true
end

local kept, graves, emptied = {}, {}, {}
for i = 1, #ids do
  local h, item, id = heads[i], items[i], ids[i]
  local q, result, x = queues[h[2]], item[7], h[23] or {}
  q.running, q.touched = q.running - 1, true
  count(h[2], h[3], RUNNING, DONE)
  if item[5] and not is_timed(h[3]) then
    put(SET, 'T' .. h[3], '1')
    TIMED[h[3]] = true
  end
  if q.retention == 0 and not (result and q.result_ttl > 0) then
    local till = NOW + CTX[3]
    remove(HEAD, id)
    remove(BODY, id)
    N[7] = N[7] - h[14]
    if till > NOW then
      put(GONE, id, 't' .. pack({DONE, false, h[8], 'done', NOW, till}))
      graves[#graves + 1] = id
    end
  else
    put(PAST, id .. 'd', pack({{h[8], h[7], h[19], h[22], NOW, 'done', true, false, item[5], item[6]}}))
    if item[6] then
      put(PAST, id .. 'e', item[6])
      x.error = 1
    end
    if result then
      put(PAST, id .. 'r', result)
      x.result = #result
      h[14], N[7] = h[14] + #result, N[7] + #result
    end
    x.finished, x.started, x.kept = NOW, 1, 'k'
    h[1], h[15], h[19], h[20], h[21], h[23] = DONE, 1, false, 0, 0, x
    put(HEAD, id, pack(h))
    kept[#kept + 1] = 0
    kept[#kept + 1] = 'k' .. q.pre .. (result and 'r' or 'n') .. n7(NOW) .. n7(h[12]) .. id
  end
end
for from = 1, #graves, 128 do
  put(GONE, 'P' .. n7(N[11]), n7(NOW + CTX[3]) .. concat(graves, '', from, math.min(from + 127, #graves)))
  N[11] = N[11] + 1
end
for name, n in pairs(replies) do
  local r = call('HGET', SESS, name)
  local live = struct.unpack('>I2', r) - n
  if live > 0 then
    put(SESS, name, struct.pack('>I2', live) .. sub(r, 3))
  else
    remove(SESS, name)
    emptied[#emptied + 1] = name
  end
end
s[8] = s[8] - #ids

local out, asked = nil, {}
if ask then
  out, asked = plain_claim(ask, s, queues)
  if not out then return otherwise() end
end
for _, q in pairs(queues) do
  if q.touched and not q.saved then save_running(q) end
end
save_session(s, session)
call('HDEL', META, '-') -- a shrinking write first: from then on a script may grow
write()
for from = 1, #kept, 2000 do call('ZADD', TIME, unpack(kept, from, math.min(from + 1999, #kept))) end
if #emptied > 0 then call('ZREM', LEASE, unpack(emptied)) end
if out and out.reply then call('ZADD', LEASE, 0, out.reply) end
for i = 1, #asked do
  if asked[i].armed then wake(asked[i]) end
end
if #ids > 0 and call('PUBSUB', 'NUMSUB', CTX[6])[2] > 0 then call('PUBLISH', CTX[6], concat(ids)) end
return {1, out or false}
