-- The second way of enqueue (see there), of plain jobs in any number.
--
-- ARGV[2]  groups of calls (see calls.lua); or of simple jobs that all have ids of their own, byte 1, then per job
--          id (16 bytes), number of its stamp (2), bytes of payload (4), body (4 bytes of length)
-- ARGV[3]  of simple jobs, {sizes of the groups, stamps}; a stamp: 1 queue, 2 task, 3 lane, 4 priority, 5 max_attempts,
--          6 tags, 7 revision
-- Returns  per group: its receipts, 1 if all were created, or {'refused', {place, why, which} …}
-- Writes   body, head, arrived, fifo, set, meta, count, lane, ring, names; what the long way does otherwise
-- Cost     O(jobs), at most 1,000; a plain job is 2 fields and its share of a chunk
-- otherwise: enqueue_any
-- include: plain
local asked = ARGV[2]
if not N or string.byte(asked) ~= 1 then return otherwise() end
local groups, stamps = unpack(unpack_(ARGV[3]))
local queues = {}
local p, constant -- most stamps differ from the one before only by their lane
for i = 1, #stamps do
  local s = stamps[i]
  local q = queues[s[1]] or plain_queue(s[1])
  if not q or (s[3] ~= '') ~= q.laned then return otherwise() end
  queues[s[1]] = q
  local band, kind = 0 - s[4], s[1] .. NUL .. s[2] .. NUL
  local names = kind .. s[3]
  if q.laned then
    q.lanes = q.lanes or {}
    q.lanes[#q.lanes + 1] = s[3]
  end
  if not (p and p[4] == s[4] and p[5] == s[5] and p[6] == s[6] and p[7] == s[7]) then
    p, constant = s, pack({s[4], s[5], band, 0, s[6], s[7], false})
  end
  stamps[i] = {q = q, lane = s[3], band = band, n = 0, tally = tally(kind), list = false,
    first = struct.pack('>BBBBBI4I8', RDY, 1, 0, 0, s[5] <= 1 and 1 or 0, 0, 0),
    last = struct.pack('>I8I8I2', NOW, NOW, #names) .. names .. constant}
end

local ids, n, bytes, at, seq = {}, 0, 0, 2, N[5]
local heads, bodies, arrivals, from = {}, {}, {}, #asked
local record, head, entry = '>c16I2I4I4c0', '>c0I8I4I8c0BI6B', '>I7c16'
local unpack_bytes, pack_bytes = struct.unpack, struct.pack
while at <= from do
  local id, stamp, size, body, behind = unpack_bytes(record, asked, at)
  local s = stamps[stamp]
  at, n, bytes, seq = behind, n + 1, bytes + size, seq + 2
  local low = seq % 256
  local high = (seq - low) / 256 % 256 -- the end of a head: see jobs.lua
  ids[n] = id
  heads[2 * n - 1], heads[2 * n] = id, pack_bytes(head, s.first, seq, size, seq - 1, s.last, high,
    high * 1103823438081, low)
  bodies[2 * n - 1], bodies[2 * n] = id, body
  arrivals[2 * n - 1], arrivals[2 * n] = seq - 1, id
  local list = s.list
  if not list then -- of its queue and band, or of its lane
    local q = s.q
    q.lists = q.lists or {}
    local name = q.laned and s.lane or s.band
    list = q.lists[name] or {n = 0, band = s.band}
    if list.band ~= s.band then return otherwise() end -- a lane with jobs in two bands
    q.lists[name], s.list = list, list
  end
  local k = list.n + 1
  list[k], list.n, s.n = pack_bytes(entry, seq, id), k, s.n + 1
end
if CTX[5] and N[7] + bytes > CTX[5] then return otherwise() end

local function any_known(key)
  local got = call('HMGET', key, unpack(ids))
  for i = 1, n do
    if got[i] then return true end
  end
end
if n == 0 or any_known(HEAD) or any_known(GONE) then return otherwise() end

for _, q in pairs(queues) do
  if q.laned then
    if not lanes.load(q, q.lanes, #q.lanes) then return otherwise() end
    for name, list in pairs(q.lists) do
      local l = q.by_lane[name]
      if l[5] and l[5] ~= list.band then return otherwise() end
    end
  end
end

N[5], N[7] = seq, N[7] + bytes
heads.n, bodies.n = 2 * n, 2 * n
HSETS[HEAD], HSETS[BODY] = heads, bodies
for i = 1, #stamps do
  local s = stamps[i]
  s.tally.n = s.tally.n + s.n
end
count_moves(nil, RDY)

local function append(q) -- to the fifo of a queue
  local all = fifos(q)
  for band, list in pairs(q.lists) do
    local f = all[band] or {1, 0, 1, 0, 0}
    all[band] = f
    f[5] = f[5] + list.n
    local first = 1
    while first <= list.n do
      if f[4] >= PER_CHUNK then f[3], f[4] = f[3] + 1, 0 end
      local name, fits = chunk_name(q, band, f[3]), math.min(list.n, first + PER_CHUNK - f[4] - 1)
      local old = f[4] > 0 and call('HGET', FIFO, name) or ''
      put(FIFO, name, old .. concat(list, '', first, fits))
      f[4] = f[4] + fits - first + 1
      first = fits + 1
    end
  end
  put(FIFO, 'c' .. q.name, write_fifos(all))
end

local function append_to_lanes(q)
  local per_chunk = lanes.per_chunk
  local fields, owners, k = {}, {}, 0
  for name, list in pairs(q.lists) do
    local l = q.by_lane[name]
    l[5], l[6], l[14] = list.band, l[6] + list.n, l[14] + list.n
    if l[10] == 0 then l[10], l[12] = 1, 1 end
    k = k + 1
    fields[k], owners[k] = lanes.chunk_of(l, l[12]), l
    lanes.touch(l)
    lanes.enter_if_open(l)
  end
  local chunks = lanes.load_fields(FIFO, fields, k)
  for i = 1, k do
    local l, old, first = owners[i], chunks[i] or '', 1
    local list = q.lists[l[2]]
    while first <= list.n do
      if l[13] >= per_chunk then l[12], l[13], old = l[12] + 1, 0, '' end
      local fits = math.min(list.n, first + per_chunk - l[13] - 1)
      put(FIFO, lanes.chunk_of(l, l[12]), old .. concat(list, '', first, fits))
      l[13] = l[13] + fits - first + 1
      first = fits + 1
    end
  end
end

for _, q in pairs(queues) do
  if q.laned then append_to_lanes(q) else append(q) end
  waiters(q)
end
if lanes then lanes.save() end
write()
for from = 1, 2 * n, 2000 do call('ZADD', ARRIVED, unpack(arrivals, from, math.min(from + 1999, 2 * n))) end
if lanes then lanes.write() end
for _, q in pairs(queues) do wake(q) end
local answer = {}
for g = 1, #groups do answer[g] = 1 end
return answer
