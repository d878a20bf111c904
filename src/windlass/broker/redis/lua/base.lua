-- The ground of every script: the declared keys, what was read of them, what is to be written.
--
-- KEYS  the keys of the namespace, always all of them, in the order below (keys.py has the same list)
-- ARGV  1: context (msgpack): now or false, session_ttl, resend_window, events_kept, max_size or false, channel
--       2: what the verb needs (msgpack); heads its own file
--
-- Two halves. While a script decides, it only reads, into tables; every change is made in the tables, and what
-- is read later sees it. `flush`, its last act, writes them. So an error before the first write leaves nothing
-- behind, and after it nothing can fail.
-- include: call, bytes

local function hash(n)
  return {k = KEYS[n], v = {}, d = {}}
end
local function lexset(n)
  -- new: to be added. gone: to be removed. back: removed and added again. list: new and back, in order.
  return {k = KEYS[n], new = {}, gone = {}, back = {}, list = {}, seen = {}, sorted = true, ngone = 0}
end

local META, SET, HEAD, BODY, PAST, FIFO = hash(1), hash(2), hash(3), hash(4), hash(5), hash(6)
local LANE, KEY, SESS, GONE, COUNT, LOG = hash(7), hash(8), hash(9), hash(10), hash(11), hash(12)
local READY, RING, LEASE, LINK = lexset(13), lexset(14), lexset(15), lexset(16)
local TIME, NAMES = lexset(17), lexset(18)
HEAD.arrived = KEYS[19] -- ids of all heads, by arrival; a field, as Lua knows at most 200 names

local NUL, LAST = '\0', string.rep('\255', 17)
local pack, unpack_ = cmsgpack.pack, cmsgpack.unpack
local floor, sub, concat = math.floor, string.sub, table.concat
local CHUNK = 1000 -- unpack() fails at about 8,000 values

local function min(a, b) if b < a then return b end return a end
local function max(a, b) if b > a then return b end return a end
local function n7(n) return struct.pack('>I7', n) end
local function n2(n) return struct.pack('>I2', n) end
local function r7(s, at) return (struct.unpack('>I7', s, at)) end
local BAND_ZERO = 17592186044416 -- 2^44: bands may be negative, members compare as bytes
local function b6(band) return struct.pack('>I6', band + BAND_ZERO) end
local function rb6(s, at) return (struct.unpack('>I6', s, at)) - BAND_ZERO end

-- hashes

local function hget(h, f)
  local v = h.v[f]
  if v == nil then
    v = call('HGET', h.k, f)
    h.v[f] = v
  end
  return v
end

local function hload(h, fields)
  local want = {}
  for i = 1, #fields do
    local f = fields[i]
    if h.v[f] == nil then
      want[#want + 1] = f
      h.v[f] = false
    end
  end
  for from = 1, #want, CHUNK do
    local to = min(from + CHUNK - 1, #want)
    local got = call('HMGET', h.k, unpack(want, from, to))
    for i = from, to do
      h.v[want[i]] = got[i - from + 1]
    end
  end
end

local function hset(h, f, v) -- false removes the field
  h.v[f] = v
  h.d[f] = true
end

-- lexicographic sets; a range is everything that begins with a prefix

local function place_of(list, m) -- where m is, or would be inserted
  local lo, hi = 1, #list + 1
  while lo < hi do
    local mid = floor((lo + hi) / 2)
    if is_less(list[mid], m) then lo = mid + 1 else hi = mid end
  end
  return lo
end

local function enlist(z, m)
  local list = z.list
  local n = #list
  if n == 0 or not z.sorted or is_less(list[n], m) then
    list[n + 1] = m
    return
  end
  if n > 200 then -- sorted again when it is next looked at
    list[n + 1] = m
    z.sorted = false
    return
  end
  local at = place_of(list, m)
  if list[at] ~= m then table.insert(list, at, m) end
end

local function zadd(z, m)
  if z.gone[m] then
    z.gone[m] = nil
    z.ngone = z.ngone - 1
    z.back[m] = true
  else
    z.new[m] = true
  end
  enlist(z, m)
end

local function zrem(z, m)
  if z.new[m] then
    z.new[m] = nil
  else
    z.back[m] = nil
    if not z.gone[m] then
      z.gone[m] = true
      z.ngone = z.ngone + 1
    end
  end
end

local function listed(z, p, after) -- the first of the tables with this prefix, behind `after`
  local list = z.list
  if #list == 0 then return nil end
  if not z.sorted then
    table.sort(list, is_less)
    z.sorted = true
  end
  local at = place_of(list, after or p)
  local len = #p
  while true do
    local m = list[at]
    if m == nil or sub(m, 1, len) ~= p then return nil end
    if (z.new[m] or z.back[m]) and m ~= after then return m end
    at = at + 1
  end
end

local function stored(z, p, after) -- the first of the store; what was read is remembered, with where it ended
  local name = after or p
  local c = z.seen[name]
  if c == nil then
    c = {at = 1, items = {}, size = 2, from = (after and '(' or '[') .. name}
    z.seen[name] = c
  end
  while true do
    local m = c.items[c.at]
    if m == nil then
      if c.done then return nil end
      c.items = call('ZRANGEBYLEX', z.k, c.from, '(' .. p .. LAST, 'LIMIT', 0, c.size)
      c.at = 1
      local n = #c.items
      if n < c.size then c.done = true end
      if n > 0 then c.from = '(' .. c.items[n] end
      if c.size < 128 then c.size = c.size * 4 end
    elseif z.gone[m] or z.back[m] then
      c.at = c.at + 1
    else
      return m
    end
  end
end

local function zfirst(z, p, after)
  local a, b = listed(z, p, after), stored(z, p, after)
  if a and (not b or is_less(a, b)) then return a end
  return b
end

local function zpage(z, p, limit, after)
  if limit <= 0 then return {} end
  local from = after and '(' .. after or '[' .. p
  local got = call('ZRANGEBYLEX', z.k, from, '(' .. p .. LAST, 'LIMIT', 0, limit + z.ngone)
  if z.ngone == 0 and #z.list == 0 then return got end
  local out, have = {}, {}
  for i = 1, #got do
    if not z.gone[got[i]] then
      out[#out + 1] = got[i]
      have[got[i]] = true
    end
  end
  local m = listed(z, p, after)
  while m do
    if not have[m] then out[#out + 1] = m end
    m = listed(z, p, m)
  end
  table.sort(out, is_less)
  for i = #out, limit + 1, -1 do out[i] = nil end
  return out
end

local function zhas(z, m)
  if z.new[m] or z.back[m] then return true end
  return not z.gone[m] and call('ZSCORE', z.k, m) and true or false
end

local function zcount(z, p)
  local n, len = call('ZLEXCOUNT', z.k, '[' .. p, '(' .. p .. LAST), #p
  for m in pairs(z.new) do
    if sub(m, 1, len) == p then n = n + 1 end
  end
  for m in pairs(z.gone) do
    if sub(m, 1, len) == p then n = n - 1 end
  end
  return n
end
