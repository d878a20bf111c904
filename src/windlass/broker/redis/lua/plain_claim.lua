-- The short way of a claim: leases from the fifos of plain queues without limits, in a session.
-- include: plain
local WITHIN = 1000

local function session_of(id)
  local s = call('HGET', SESS, 'S' .. id)
  return s and unpack_(s)
end

local function range(key, p) -- the first of a range
  return call('ZRANGEBYLEX', key, '[' .. p, '(' .. p .. LAST, 'LIMIT', 0, 1)[1]
end

-- What a queue can give by the short way: nil if something in it is not plain.
local function is_simple(q)
  if not q or not q.unlimited or q.paused or call('HEXISTS', LANE, 'l' .. q.pre) == 1 then return false end
  if range(READY, 'L' .. q.pre) then return false end
  q.suspects = call('ZLEXCOUNT', READY, '[S' .. q.pre, '(S' .. q.pre .. LAST)
  local due, suspect = range(TIME, 'D' .. q.pre), range(TIME, 'd' .. q.pre)
  if suspect and struct.unpack('>I7', suspect, #q.pre + 2) <= NOW then return false end
  q.due = due and struct.unpack('>I7', due, #q.pre + 2)
  return not q.due or q.due > NOW
end

local function first_band(q)
  local low
  for band, f in pairs(fifos(q)) do
    if f[5] > 0 and (not low or band < low) then low = band end
  end
  return low
end

-- The next `want` jobs of the lowest band: {id, head as array, band, file}; nil if one of them is not plain.
local function peek(q, want)
  local band = first_band(q)
  if not band then return {} end
  local f = q.fifo[band]
  local ids, places, n, off = {}, {}, f[1], f[2]
  while #ids < want and n <= f[3] do
    local s = call('HGET', FIFO, chunk_name(q, band, n)) or ''
    local to = math.min(#s, (off + want - #ids) * ENTRY)
    for at = off * ENTRY, to - ENTRY, ENTRY do
      ids[#ids + 1] = sub(s, at + 8, at + 23)
      places[#places + 1] = struct.unpack('>I7', s, at + 1)
    end
    n, off = n + 1, 0
  end
  if #ids == 0 then return nil end
  local heads, found = call('HMGET', HEAD, unpack(ids)), {}
  for i = 1, #ids do
    local h = heads[i] and unpack_(heads[i])
    if not h or h[1] ~= RDY or h[18] ~= 1 or h[11] ~= places[i] then return nil end
    local x = h[23]
    if x and (x.expires or x.after or x.memos or x.crashes) then return nil end
    found[i] = {ids[i], h}
  end
  return found, f, band
end

local function take(q, f, band, n) -- so many entries are used up
  f[5] = f[5] - n
  f[2] = f[2] + n
  while f[1] < f[3] and f[2] >= PER_CHUNK do
    remove(FIFO, chunk_name(q, band, f[1]))
    f[1], f[2] = f[1] + 1, f[2] - PER_CHUNK
  end
  if f[1] == f[3] and f[2] >= f[4] then
    remove(FIFO, chunk_name(q, band, f[1]))
    q.fifo[band] = nil
  end
  q.taken = true
end

local TIMED = {}
local function is_timed(task)
  if TIMED[task] == nil then TIMED[task] = call('HEXISTS', SET, 'T' .. task) == 1 end
  return TIMED[task]
end

-- Decides a claim. `queues` by name may hold queues that a settle before it has touched. nil: not plain.
local function plain_claim(ask, s, queues)
  if ask[7] or not ask[4] or ask[5] <= s[5] then return nil end
  local asked, seen, leases, payload, more = {}, {}, {}, 0, false
  for i = 1, #ask[1] do
    local name = ask[1][i]
    if not seen[name] then
      seen[name] = true
      local q = queues[name] or plain_queue(name)
      if not is_simple(q) then return nil end
      queues[name] = q
      asked[#asked + 1] = q
    end
  end
  for i = 1, #asked do
    local q = asked[i]
    while not more do
      local found, f, band = peek(q, math.min(WITHIN, ask[3] + 1 - #leases))
      if not found then return nil end
      if #found == 0 then break end
      local n = 0
      for k = 1, #found do
        local h = found[k][2]
        local room = (h[7] + 1 >= h[6] or not is_timed(h[3])) and ask[2] or ask[3]
        payload = payload + h[14]
        if #leases >= room or (#leases > 0 and payload > ask[8]) then
          more = true
          break
        end
        n = n + 1
        leases[#leases + 1] = found[k]
      end
      if n > 0 then
        take(q, f, band, n)
        q.running = q.running + n
      end
    end
  end
  for i = 1, #leases do
    local id, h = leases[i][1], leases[i][2]
    local fence = h[8] + 1
    if fence < NOW then fence = NOW end
    h[1], h[7], h[8], h[18], h[19], h[20], h[21], h[22] = RUNNING, h[7] + 1, fence, 0, ask[4], ask[5], i - 1, NOW
    leases[i][3] = pack(h)
    put(HEAD, id, leases[i][3])
    count(h[2], h[3], RDY, RUNNING)
  end
  s[5], s[8] = ask[5], s[8] + #leases
  local next_in, suspects, ids = -1, 0, {}
  for i = 1, #asked do
    local q = asked[i]
    suspects = suspects + q.suspects
    local wait = first_band(q) and 0 or (q.due and q.due - NOW)
    if wait == 0 then
      q.armed = true
      waiters(q)
    end
    if wait and (next_in < 0 or wait < next_in) then next_in = wait end
    if q.taken then
      if next(q.fifo) ~= nil then put(FIFO, 'c' .. q.name, pack(q.fifo)) else remove(FIFO, 'c' .. q.name) end
      save_running(q)
      q.saved = true
    end
  end
  for i = 1, #leases do ids[i] = leases[i][1] end
  local out = {0, more and 1 or 0, next_in, math.min(100, suspects), NOW}
  if #ids > 0 then
    local bodies = call('HMGET', BODY, unpack(ids))
    local name = ask[4] .. NUL .. n7(ask[5])
    put(SESS, 'L' .. name, struct.pack('>I2', #ids) .. concat(ids))
    for i = 1, #ids do
      out[#out + 1] = ids[i]
      out[#out + 1] = leases[i][3]
      out[#out + 1] = bodies[i]
      out[#out + 1] = ''
      out[#out + 1] = ''
    end
    out.reply = 'L' .. name
  end
  return out, asked
end

local function save_session(s, id) put(SESS, 'S' .. id, pack(s)) end
