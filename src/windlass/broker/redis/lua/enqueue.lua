-- enqueue: accept groups, each by itself; a group comes into being whole or not at all.
--
-- ARGV[2]  groups of calls (see calls.lua)
-- Returns  per group: its receipts, 1 if all were created, or {'refused', {place, why, which} …}
-- Writes   body, head, fifo, set, meta, count; what the long way does otherwise
-- Cost     O(jobs), at most 1,000; a plain job is 2 fields and its share of a chunk
-- otherwise: enqueue_any
-- include: plain
local groups = unpack_(ARGV[2])
local first = groups[1] and groups[1][1]
local q = N and first and plain_queue(first[2])
if not q then return otherwise() end

local ids, seen, bytes = {}, {}, 0
for g = 1, #groups do
  local calls = groups[g]
  for i = 1, #calls do
    local c = calls[i]
    if c[2] ~= q.name or c[4] ~= '' or c[10] or c[17] or c[7] ~= 0 or c[8] or c[9] or seen[c[1]] then
      return otherwise()
    end
    seen[c[1]] = true
    ids[#ids + 1] = c[1]
    bytes = bytes + c[19]
  end
end
if CTX[5] and N[7] + bytes > CTX[5] then return otherwise() end
local function any_known(key)
  local got = call('HMGET', key, unpack(ids))
  for i = 1, #ids do
    if got[i] then return true end
  end
end
if #ids == 0 or any_known(HEAD) or any_known(GONE) then return otherwise() end

local seq, entries = N[5], {}
for g = 1, #groups do
  local calls = groups[g]
  for i = 1, #calls do
    local c = calls[i]
    local band, x = 0 - c[5], false
    if c[15] ~= '' then x = {flow = c[15]} end
    seq = seq + 2
    put(BODY, c[1], c[18])
    put(HEAD, c[1], pack({RDY, c[2], c[3], '', c[5], c[6], 0, 0, NOW, band, seq, seq - 1, NOW, c[19], 0, c[13], c[14],
      1, false, 0, 0, 0, x}))
    count(c[2], c[3], nil, RDY)
    local list = entries[band]
    if not list then
      list = {}
      entries[band] = list
    end
    list[#list + 1] = n7(seq) .. c[1]
  end
end
N[5], N[7] = seq, N[7] + bytes

local all = fifos(q)
for band, list in pairs(entries) do
  local f = all[band] or {1, 0, 1, 0, 0}
  all[band] = f
  f[5] = f[5] + #list
  local at = 1
  while at <= #list do
    if f[4] >= PER_CHUNK then f[3], f[4] = f[3] + 1, 0 end
    local name, fits = chunk_name(q, band, f[3]), math.min(#list, at + PER_CHUNK - f[4] - 1)
    local old = f[4] > 0 and call('HGET', FIFO, name) or ''
    put(FIFO, name, old .. concat(list, '', at, fits))
    f[4] = f[4] + fits - at + 1
    at = fits + 1
  end
end
put(FIFO, 'c' .. q.name, pack(all))
waiters(q)
write()
wake(q)
local answer = {}
for g = 1, #groups do answer[g] = 1 end
return answer
