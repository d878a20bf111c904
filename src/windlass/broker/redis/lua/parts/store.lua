-- The keys of the namespace: what this call has read of them, and what it will write.
--
-- KEYS  all keys of the namespace, in the order below (keys.py has the same list)
-- ARGV  1: the context (see context.lua)   2 and on: what the verb needs; its own file says what
--
-- A script has two halves. While it decides, it only reads. Every change is made in the tables below, and later reads see
-- it. `flush` (write.lua) is its last step and writes them. So an error before the first write leaves nothing behind,
-- and after the first write nothing can fail.
-- include: call, bytes

-- A hash: k its key; v the fields that were read or changed (false: absent), changed those to be written.
-- A set of members in the order of their bytes, of which a range is everything with one prefix: new those to be added, gone
-- those to be removed, back those removed and added again; list new and back in order, loose those of them that are not in
-- `list` yet; pages what was read of the server, by where the read began. Tables are made when they are needed.
local function key(n) return {k = KEYS[n]} end

local META, SET, HEAD, BODY, PAST, FIFO = key(1), key(2), key(3), key(4), key(5), key(6)
local LANE, KEY, SESS, GONE, COUNT, LOG = key(7), key(8), key(9), key(10), key(11), key(12)
local READY, RING, LEASE, LINK = key(13), key(14), key(15), key(16)
local TIME, NAMES = key(17), key(18)
local ARRIVED = KEYS[19] -- a set: the ids of all heads, by arrival

local NUL, LAST = '\0', string.rep('\255', 17)
local encode, decode = cmsgpack.pack, cmsgpack.unpack
local floor, sub, byte, concat = math.floor, string.sub, string.byte, table.concat
local CHUNK = 1000 -- fields of one command: unpack() fails at about 8,000 values

local function min(a, b) if b < a then return b end return a end
local function max(a, b) if b > a then return b end return a end

-- numbers as bytes, so that their order is that of members
local BAND_ZERO = 17592186044416 -- 2^44: bands may be negative
local function bytes7(n) return struct.pack('>I7', n) end
local function read7(s, at) return (struct.unpack('>I7', s, at)) end
local function band_bytes(band) return struct.pack('>I6', band + BAND_ZERO) end
local function read_band(s, at) return (struct.unpack('>I6', s, at)) - BAND_ZERO end

-- hashes

local function hget(h, field)
  local known = h.v
  if not known then
    known = {}
    h.v = known
  end
  local v = known[field]
  if v == nil then
    v = call('HGET', h.k, field)
    known[field] = v
  end
  return v
end

local function hload(h, fields) -- read many fields at once, those that were not read yet
  h.v = h.v or {}
  local known, want, n = h.v, {}, 0
  for i = 1, #fields do
    local field = fields[i]
    if known[field] == nil then
      n = n + 1
      want[n], known[field] = field, false
    end
  end
  for from = 1, n, CHUNK do
    local to = min(from + CHUNK - 1, n)
    local got = call('HMGET', h.k, unpack(want, from, to))
    for i = from, to do known[want[i]] = got[i - from + 1] end
  end
end

local function hset(h, field, v) -- false removes the field
  if not h.changed then h.v, h.changed = h.v or {}, {} end
  h.v[field] = v
  h.changed[field] = true
end

-- lexicographic sets

local function place_of(list, m) -- where m is, or would be inserted
  local low, high = 1, #list + 1
  while low < high do
    local middle = floor((low + high) / 2)
    if is_less(list[middle], m) then low = middle + 1 else high = middle end
  end
  return low
end

local function start_changes(z) z.new, z.gone, z.back, z.list, z.loose, z.removed = {}, {}, {}, {}, {}, 0 end

local function zadd(z, m)
  if not z.new then start_changes(z) end
  if z.gone[m] then
    z.gone[m] = nil
    z.removed = z.removed - 1
    z.back[m] = true
  else
    z.new[m] = true
  end
  z.loose[#z.loose + 1] = m
end

local function zrem(z, m)
  if not z.new then start_changes(z) end
  if z.new[m] then
    z.new[m] = nil
    return
  end
  z.back[m] = nil
  if not z.gone[m] then
    z.gone[m] = true
    z.removed = z.removed + 1
  end
end

local FEW = 8 -- loose members that are inserted one by one; more are sorted together
local function put_in_order(z)
  local list, loose = z.list, z.loose
  for i = 1, #loose do
    local m = loose[i]
    local n = #list
    if #loose > FEW or n == 0 or is_less(list[n], m) then
      list[n + 1] = m
    else
      local at = place_of(list, m)
      if list[at] ~= m then table.insert(list, at, m) end
    end
  end
  if #loose > FEW then table.sort(list, is_less) end
  z.loose = {}
end

local function first_added(z, prefix, after) -- of the members that this call added
  if not z.new then return nil end
  if #z.loose > 0 then put_in_order(z) end
  local list = z.list
  if #list == 0 then return nil end
  local at, length = place_of(list, after or prefix), #prefix
  while true do
    local m = list[at]
    if m == nil or sub(m, 1, length) ~= prefix then return nil end
    if not (z.new[m] or z.back[m]) or m == list[at + 1] then
      table.remove(list, at) -- removed since, or there twice
    elseif m == after then
      at = at + 1
    else
      return m
    end
  end
end

local function first_stored(z, prefix, after) -- of the members that the server has
  local name = after or prefix
  z.pages = z.pages or {}
  local page = z.pages[name]
  if page == nil then
    page = {at = 1, items = {}, size = 2, from = (after and '(' or '[') .. name, done = false}
    z.pages[name] = page
  end
  while true do
    local m = page.items[page.at]
    if m == nil then
      if page.done then return nil end
      page.items, page.at = call('ZRANGEBYLEX', z.k, page.from, '(' .. prefix .. LAST, 'LIMIT', 0, page.size), 1
      local n = #page.items
      if n < page.size then page.done = true end
      if n > 0 then page.from = '(' .. page.items[n] end
      if page.size < 128 then page.size = page.size * 4 end
    elseif z.new and (z.gone[m] or z.back[m]) then
      page.at = page.at + 1
    else
      return m
    end
  end
end

local function zfirst(z, prefix, after) -- the first member of a range, or the first behind `after`
  local a, b = first_added(z, prefix, after), first_stored(z, prefix, after)
  if a and (not b or is_less(a, b)) then return a end
  return b
end

local function zpage(z, prefix, limit, after) -- the first members of a range
  if limit <= 0 then return {} end
  local from = after and '(' .. after or '[' .. prefix
  local got = call('ZRANGEBYLEX', z.k, from, '(' .. prefix .. LAST, 'LIMIT', 0, limit + (z.removed or 0))
  local m = first_added(z, prefix, after)
  if not z.new or (z.removed == 0 and not m) then return got end
  local out, have = {}, {}
  for i = 1, #got do
    if not z.gone[got[i]] then
      out[#out + 1] = got[i]
      have[got[i]] = true
    end
  end
  while m do
    if not have[m] then out[#out + 1] = m end
    m = first_added(z, prefix, m)
  end
  table.sort(out, is_less)
  for i = #out, limit + 1, -1 do out[i] = nil end
  return out
end

local function zhas(z, m)
  if not z.new then return call('ZSCORE', z.k, m) and true or false end
  if z.new[m] or z.back[m] then return true end
  return not z.gone[m] and call('ZSCORE', z.k, m) and true or false
end

local function zcount(z, prefix)
  local n, length = call('ZLEXCOUNT', z.k, '[' .. prefix, '(' .. prefix .. LAST), #prefix
  if not z.new then return n end
  for m in pairs(z.new) do
    if sub(m, 1, length) == prefix then n = n + 1 end
  end
  for m in pairs(z.gone) do
    if sub(m, 1, length) == prefix then n = n - 1 end
  end
  return n
end
