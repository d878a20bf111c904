-- The short way for lanes: of queues in strict order that have lanes, with no limits but `lane_concurrency`; for lanes
-- whose record is bytes (see queues.lua). It does what filing.lua does, for all lanes of a call at once.
-- include: short, bytes
local call, N, NOW, put, remove = ...
local STRIDE, REBASE_AT, PER_LANE_CHUNK = 1048576, 4503599627370496, 16
local SIMPLE_LANE = '>BI4I6I4I8I8I8I4BI4BI4'
local LANE_LIST, RINGS = {n = 0}, {}

-- A lane (by number: a table with so many names is five times as large): 1 queue, 2 name, 3 its field, 4 running,
-- 5 band or false, 6 ready, 7 clock, 8 due or 0, 9 generation or 0, 10 to 14 fifo, 15 due as stored, 16 touched, 17 new,
-- 18 its member in the ring as stored, if it was read

local function load_fields(key, fields, n) -- at once, however many
  if n <= 1000 then return n > 0 and call('HMGET', key, unpack(fields, 1, n)) or {} end
  local got = {}
  for from = 1, n, 1000 do
    local to = math.min(from + 999, n)
    local some = call('HMGET', key, unpack(fields, from, to))
    for i = from, to do got[i] = some[i - from + 1] end
  end
  return got
end

local function touch_lane(l)
  if not l[16] then
    l[16], LANE_LIST.n = true, LANE_LIST.n + 1
    LANE_LIST[LANE_LIST.n] = l
  end
end

local function open_lane(q, name, field, s) -- a lane from its record; without one it is new
  local _, u, band, ready, clock, due, born, f1, f2, f3, f4, f5 = 1, 0, false, 0, 0, 0, 0, 0, 0, 0, 0, 0
  if s then
    _, u, band, ready, clock, due, born, f1, f2, f3, f4, f5 = struct.unpack(SIMPLE_LANE, s)
    band = (ready > 0 or born > 0 or f1 > 0) and band - BAND_ZERO
  end
  return {q, name, field, u, band, ready, clock, due, born, f1, f2, f3, f4, f5, due, false, not s, false}
end

-- Reads lanes of a queue; false if one of them is not simple. `names` is a list of n names. In `by_lane` a lane of which
-- only the number of runs has changed is its new record.
local function load_lanes(q, names, n)
  local fields, unread, k, known, l_pre = {}, {}, 0, q.by_lane, 'l' .. q.pre
  if not known then
    known = {}
    q.by_lane = known
  end
  for i = 1, n do
    local name = names[i]
    local found = known[name]
    if found == nil then
      if name == '' then return false end -- what has no lane is in the queue's own fifo
      k = k + 1
      fields[k], unread[k], known[name] = l_pre .. name, name, false
    elseif type(found) == 'string' then
      known[name] = open_lane(q, name, l_pre .. name, found)
      touch_lane(known[name])
    end
  end
  local got = load_fields(LANE, fields, k)
  for i = 1, k do
    local s, name = got[i], unread[i]
    if s and string.byte(s) ~= 1 then return false end
    known[name] = open_lane(q, name, fields[i], s)
  end
  return true
end

local function ring_of(q, band) -- 1 time, 2 lanes in it, 3 empty since or false, 4 generation
  local rings = q.rings
  if not rings then
    rings = {}
    q.rings = rings
  end
  local r = rings[band]
  if not r then
    local at = q.pre .. struct.pack('>I6', band + BAND_ZERO)
    local s = call('HGET', LANE, 't' .. at)
    r = s and unpack_(s) or {0, 0, false, false}
    r.at, r.seats = at, 'R' .. at
    rings[band], RINGS[#RINGS + 1] = r, r
  end
  return r
end

local function seat_name(l, due) return struct.pack('>c0I7c0', ring_of(l[1], l[5]).seats, due, l[2]) end

local function enter_if_open(l) -- it may have something to hand out now
  local q = l[1]
  if l[8] > 0 or l[6] == 0 or (q.most and l[4] >= q.most) then return end
  local r = ring_of(q, l[5])
  if not r[4] then
    N[5] = N[5] + 1
    r[4] = N[5]
  end
  if l[9] ~= r[4] then l[7], l[9] = r[1], r[4] end
  l[7] = math.max(l[7], r[1])
  l[8] = l[7] + STRIDE
  r[2], r[3], r.touched = r[2] + 1, false, true
  q.entered = q.entered or {}
  q.entered[#q.entered + 1] = l
end

-- Runs have ended, so many (`ended`) of each lane in a list; false if one of them is not simple. Most lanes stay where they
-- are in their ring, or out of it: then nothing but a number in their records changes.
local function end_runs(q, names, ended)
  local n, fields, known, most, l_pre = #names, {}, {}, q.most, 'l' .. q.pre
  for i = 1, n do
    if names[i] == '' then return false end
    fields[i] = l_pre .. names[i]
  end
  local got, unpack_bytes, pack_bytes = load_fields(LANE, fields, n), struct.unpack, struct.pack
  q.by_lane = known
  for i = 1, n do
    local s, name = got[i], names[i]
    if not s or string.byte(s) ~= 1 then return false end
    local u, _, ready, _, due = unpack_bytes('>I4I6I4I8I8', s, 2)
    u = u - ended[name]
    if due > 0 or ready == 0 or (most and u >= most) then
      s = pack_bytes('>BI4', 1, u) .. sub(s, 6)
      known[name] = s
      put(LANE, fields[i], s)
    else
      local l = open_lane(q, name, fields[i], s)
      l[4], known[name] = u, l
      touch_lane(l)
      enter_if_open(l)
    end
  end
  return true
end

local function chunk_of(l, n) return struct.pack('>Bc0c0BI6I7', 0, l[1].pre, l[2], 0, l[5] + BAND_ZERO, n) end

-- Turns of a queue come in the order of their members of the ring.
local function is_before(t, u)
  local l, m = t[1], u[1]
  if l[5] ~= m[5] then return l[5] < m[5] end
  if t[4] ~= u[4] then return t[4] < u[4] end
  return is_less(l[2], m[2])
end

local ADDS, DELS, NEW = {n = 0}, {n = 0}, {n = 0}

-- The next `want` jobs of a ring, where they are one turn of each of its first lanes: nobody's second turn comes before the
-- last of these. Records are bytes: no table is made for a lane. nil: not plain; false: not a round.
local function peek_round(q, page, want, turn, from)
  local names, fields, most, l_pre, pre, known = {}, {}, q.most, 'l' .. q.pre, q.pre, q.by_lane or {}
  local records, counts, chunks, at_chunk, offsets = {}, {}, {}, {}, {}
  local unpack_bytes, pack_bytes, byte, floor = struct.unpack, struct.pack, string.byte, math.floor
  local band, first_due = unpack_bytes('>I6I7', page[1], from - 13)
  local n, k, got = 0, 0, 0
  while got < want do
    local m = math.min(#page - n, floor((want - got + turn - 1) / turn))
    if m == 0 then return false end -- some lane has another turn
    local some = {}
    for i = 1, m do
      local name = sub(page[n + i], from)
      names[n + i], some[i] = name, l_pre .. name
    end
    local read = load_fields(LANE, some, m)
    for i = 1, m do
      n = n + 1
      local s = known[names[n]] or read[i]
      if not s or byte(s) ~= 1 then return nil end
      local u, _, ready, _, _, _, first, used = unpack_bytes('>I4I6I4I8I8I8I4B', s, 2)
      local take = turn
      if ready < take then take = ready end
      if most and most - u < take then take = most - u end
      if first == 0 or take <= 0 then return nil end -- the limit has changed
      if want - got < take then take = want - got end
      if used >= PER_LANE_CHUNK then first, used = first + 1, used - PER_LANE_CHUNK end
      k = k + 1
      records[n], fields[n], counts[n] = s, some[i], take
      chunks[k] = pack_bytes('>Bc0c0BI6I7', 0, pre, names[n], 0, band, first)
      for _ = 1, take do
        if used >= PER_LANE_CHUNK then
          k, first, used = k + 1, first + 1, 0
          chunks[k] = pack_bytes('>Bc0c0BI6I7', 0, pre, names[n], 0, band, first)
        end
        got = got + 1
        at_chunk[got], offsets[got], used = k, used * ENTRY + 1, used + 1
      end
      if got >= want then break end
    end
  end
  local last_band, last_due = unpack_bytes('>I6I7', page[n], from - 13)
  local lead = first_due + turn * STRIDE - last_due
  if last_band ~= band or lead < 0 or (lead == 0 and not is_less(names[n], names[1])) then return false end
  for i = 1, q.entered and #q.entered or 0 do
    local l = q.entered[i]
    if l[5] + BAND_ZERO < band or (l[5] + BAND_ZERO == band and l[8] <= last_due) then return false end
  end
  local ids, places, loaded = {}, {}, load_fields(FIFO, chunks, k)
  for i = 1, got do
    local chunk, at = loaded[at_chunk[i]], offsets[i]
    if not chunk or at + ENTRY > #chunk + 1 then return nil end
    places[i], ids[i] = unpack_bytes('>I7c16', chunk, at)
  end
  return {n = got, ids = ids, places = places, q = q, page = page, names = names, band = band, fields = fields, records = records,
    counts = counts}
end

local function take_round(found, n) -- so many of them are handed out
  local q, page, records, fields, band, counts = found.q, found.page, found.records, found.fields, found.band, found.counts
  local r, most, pre, unpack_bytes, pack_bytes = ring_of(q, band - BAND_ZERO), q.most, q.pre, struct.unpack, struct.pack
  local time, seats, adds, dels, i = r[1], r.seats, ADDS.n, DELS.n, 0
  while n > 0 do
    i = i + 1
    local c = counts[i]
    if n < c then c = n end
    n = n - c
    local _, u, _, ready, clock, due, born, f1, f2, f3, f4, f5 = unpack_bytes(SIMPLE_LANE, records[i])
    if c > 1 then clock = due + (c - 2) * STRIDE end
    if clock > time then time = clock end
    clock = due + (c - 1) * STRIDE
    due, ready, u, f2, f5 = clock + STRIDE, ready - c, u + c, f2 + c, f5 - c
    local name = found.names[i]
    if ready == 0 or (most and u >= most) then
      due, r[2] = 0, r[2] - 1
      if r[2] == 0 then r[3] = NOW end
    else
      ADDS[adds + 1], ADDS[adds + 2], adds = '0', pack_bytes('>c0I7c0', seats, due, name), adds + 2
    end
    dels = dels + 1
    DELS[dels] = page[i]
    if f1 < f3 and f2 >= PER_LANE_CHUNK then
      remove(FIFO, pack_bytes('>Bc0c0BI6I7', 0, pre, name, 0, band, f1))
      f1, f2 = f1 + 1, f2 - PER_LANE_CHUNK
    end
    if f1 == f3 and f2 >= f4 then
      remove(FIFO, pack_bytes('>Bc0c0BI6I7', 0, pre, name, 0, band, f1))
      f1, f2, f3, f4, f5 = 0, 0, 0, 0, 0
    end
    put(LANE, fields[i], pack_bytes(SIMPLE_LANE, 1, u, band, ready, clock, due, born, f1, f2, f3, f4, f5))
  end
  r[1], r.touched, ADDS.n, DELS.n = time, true, adds, dels
end

local function ring_page(q, n)
  local p = 'R' .. q.pre
  return call('ZRANGEBYLEX', RING, '[' .. p, '(' .. p .. LAST, 'LIMIT', 0, n)
end

-- The next `want` jobs by ring, as `peek` gives them, with their lanes and when it was their turn; nil: not plain.
local function peek_lanes(q, want, turn)
  local names, from = {}, #q.pre + 15
  -- Most lanes have all jobs of a turn; else as many lanes as jobs are enough.
  local few = math.min(want, math.floor(want / turn) + 32)
  local page = ring_page(q, few)
  local found = #page > 0 and peek_round(q, page, want, turn, from)
  if found == false and #page == few and few < want then
    page = ring_page(q, want)
    found = peek_round(q, page, want, turn, from)
  end
  if found ~= false then return found end
  local n = #page
  for i = 1, n do names[i] = sub(page[i], from) end
  if not load_lanes(q, names, n) then return nil end
  -- A turn: 1 lane, 2 ready, 3 running, 4 due, 5 entries of its chunk that are used up, 6 which chunk, 7 the chunk.
  -- A lane that had its turn comes again one stride later: the three lists stay in order.
  local stored, entered, again, most, known = {}, {}, {}, q.most, q.by_lane
  for i = 1, n do
    local l = known[names[i]]
    if most and l[4] >= most then return nil end -- the limit has changed
    l[18], stored[i] = page[i], {l, l[6], l[4], l[8], l[11], false, false}
  end
  for i = 1, q.entered and #q.entered or 0 do
    local l = q.entered[i]
    entered[i] = {l, l[6], l[4], l[8], l[11], false, false}
  end
  if #entered > 1 then table.sort(entered, is_before) end
  local at, en, ag, n_again, got = 1, 1, 1, 0, 0
  local lanes, dues, fields, turns, k = {}, {}, {}, {}, 0
  while got < want do
    local t, e, a = stored[at], entered[en], again[ag]
    if t and (not e or is_before(t, e)) and (not a or is_before(t, a)) then
      at = at + 1
    elseif e and (not a or is_before(e, a)) then
      t, en = e, en + 1
    elseif a then
      t, ag = a, ag + 1
    else
      break
    end
    local l = t[1]
    if not t[6] then
      if l[10] == 0 then return nil end
      k = k + 1
      fields[k], t[6], turns[k] = chunk_of(l, l[10]), l[10], t
    end
    local left = turn
    repeat
      got, left = got + 1, left - 1
      lanes[got], dues[got] = t, t[4]
      t[2], t[3], t[4] = t[2] - 1, t[3] + 1, t[4] + STRIDE
    until left == 0 or got == want or t[2] == 0 or (most and t[3] >= most)
    if t[2] > 0 and not (most and t[3] >= most) then
      n_again = n_again + 1
      again[n_again] = t
    end
  end
  if got == 0 then return {n = 0} end
  local chunks = load_fields(FIFO, fields, k)
  for i = 1, k do turns[i][7] = chunks[i] or '' end
  local ids, places = {}, {}
  for i = 1, got do
    local t = lanes[i]
    local l, off = t[1], t[5]
    if off >= PER_LANE_CHUNK then
      t[6], off = t[6] + 1, off - PER_LANE_CHUNK
      t[7] = call('HGET', FIFO, chunk_of(l, t[6])) or ''
    end
    if (off + 1) * ENTRY > #t[7] then return nil end
    places[i], ids[i] = struct.unpack('>I7c16', t[7], off * ENTRY + 1)
    lanes[i], t[5] = l, off + 1
  end
  return {n = got, ids = ids, places = places, lanes = lanes, dues = dues}
end

local function take_lanes(found, n) -- so many of them are handed out
  if found.records then return take_round(found, n) end
  for i = 1, n do
    local l, due = found.lanes[i], found.dues[i]
    local q, r = l[1], ring_of(l[1], l[5])
    if l[7] > r[1] then r[1] = l[7] end
    l[7], l[8] = due, due + STRIDE
    l[6], l[4], l[11], l[14] = l[6] - 1, l[4] + 1, l[11] + 1, l[14] - 1
    if l[6] == 0 or (q.most and l[4] >= q.most) then
      l[8] = 0
      r[2] = r[2] - 1
      if r[2] == 0 then r[3] = NOW end
    end
    r.touched = true
    touch_lane(l)
    if l[11] >= PER_LANE_CHUNK or (l[10] == l[12] and l[11] >= l[13]) then
      remove(FIFO, chunk_of(l, l[10]))
      if l[10] < l[12] then
        l[10], l[11] = l[10] + 1, l[11] - PER_LANE_CHUNK
      else
        l[10], l[11], l[12], l[13], l[14] = 0, 0, 0, 0, 0
      end
    end
  end
end

local function save_lanes() -- what is to be written of them
  local pack_bytes = struct.pack
  for i = 1, LANE_LIST.n do
    local l = LANE_LIST[i]
    put(LANE, l[3], pack_bytes(SIMPLE_LANE, 1, l[4], (l[5] or 0) + BAND_ZERO, l[6], l[7], l[8], l[9], l[10], l[11], l[12],
      l[13], l[14]))
    if l[8] ~= l[15] then
      if l[15] > 0 then
        DELS.n = DELS.n + 1
        DELS[DELS.n] = l[18] or seat_name(l, l[15])
      end
      if l[8] > 0 then
        ADDS[ADDS.n + 1], ADDS[ADDS.n + 2], ADDS.n = '0', seat_name(l, l[8]), ADDS.n + 2
      end
    end
    if l[17] then NEW[NEW.n + 1], NEW[NEW.n + 2], NEW.n = '0', 'L' .. sub(l[3], 2), NEW.n + 2 end
  end
  for i = 1, #RINGS do
    local r = RINGS[i]
    if r.touched then put(LANE, 't' .. r.at, pack({r[1], r[2], r[3], r[4]})) end
  end
end

local function write_rings()
  for from = 1, DELS.n, 1000 do call('ZREM', RING, unpack(DELS, from, math.min(from + 999, DELS.n))) end
  for from = 1, ADDS.n, 2000 do call('ZADD', RING, unpack(ADDS, from, math.min(from + 1999, ADDS.n))) end
  for from = 1, NEW.n, 2000 do call('ZADD', NAMES, unpack(NEW, from, math.min(from + 1999, NEW.n))) end
end

local function must_rebase()
  for i = 1, #RINGS do
    if RINGS[i][1] >= REBASE_AT then return true end
  end
  return false
end

return {load_fields = load_fields, load = load_lanes, touch = touch_lane, enter_if_open = enter_if_open, end_runs = end_runs,
  chunk_of = chunk_of, per_chunk = PER_LANE_CHUNK, peek = peek_lanes, take = take_lanes, must_rebase = must_rebase,
  save = save_lanes, write = write_rings}
