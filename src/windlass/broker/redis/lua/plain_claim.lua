-- The short way of a claim: leases from the fifos of plain queues and of their lanes, in a session.
-- include: plain
local WITHIN = 1000

local function session_of(id) -- of its record (see session.lua): ended, seq, leases, and the rest
  local kept = call('HGET', SESS, 'S' .. id)
  if not kept then return nil end
  local ended, seq, leases = struct.unpack('>BI8I4', kept)
  return {ended = ended == 1, seq = seq, leases = leases, rest = sub(kept, 14)}
end

local function range(key, p) -- the first of a range
  return call('ZRANGEBYLEX', key, '[' .. p, '(' .. p .. LAST, 'LIMIT', 0, 1)[1]
end

-- What a queue can give by the short way: nil if something in it is not plain.
local function is_simple(q)
  if not q or q.paused then return false end
  if q.laned then
    if range(RING, 'W' .. q.pre) then return false end
  elseif not q.unlimited or call('HEXISTS', LANE, 'l' .. q.pre) == 1 then
    return false
  end
  q.suspects = 0
  if call('ZLEXCOUNT', READY, '-', '+') > 1 then -- the one is the member that every set has
    if range(READY, 'L' .. q.pre) then return false end
    q.suspects = call('ZLEXCOUNT', READY, '[S' .. q.pre, '(S' .. q.pre .. LAST)
  end
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

local READ = '>BBBBBI4I8I8I4I8I8I8I2c0'
-- The next `want` jobs of the lowest band: their ids and places.
local function peek(q, want)
  local band = first_band(q)
  if not band then return {n = 0} end
  local f = q.fifo[band]
  local ids, places, got, n, off = {}, {}, 0, f[1], f[2]
  while got < want and n <= f[3] do
    local s = call('HGET', FIFO, chunk_name(q, band, n)) or ''
    local to = math.min(#s, (off + want - got) * ENTRY)
    for at = off * ENTRY + 1, to - ENTRY + 1, ENTRY do
      got = got + 1
      places[got], ids[got] = struct.unpack('>I7c16', s, at)
    end
    n, off = n + 1, 0
  end
  if got == 0 then return nil end
  return {n = got, ids = ids, places = places, f = f, band = band}
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
end

local TIMED = {}
local function is_timed(task)
  if TIMED[task] == nil then TIMED[task] = call('HEXISTS', SET, 'T' .. task) == 1 end
  return TIMED[task]
end

-- Decides a claim. `queues` by name may hold queues that a settle before it has touched. nil: not plain.
local function plain_claim(ask, s, queues)
  if ask[7] or not ask[4] or ask[5] ~= s.seq + 1 then return nil end
  local asked, seen, payload, more = {}, {}, 0, false
  for i = 1, #ask[1] do
    local name = ask[1][i]
    if not seen[name] then
      seen[name] = true
      local q = queues[name] or plain_queue(name)
      if not is_simple(q) then return nil end
      queues[name] = q
      asked[#asked + 1], q.asked = q, true
    end
  end
  local leased, ids, slots, limit, most, soon = 0, {}, ask[2], ask[3], ask[8], ask[10] or ask[2]
  local turn = math.min(4, 1 + math.floor((soon - slots) / 32)) -- `order.turn_of`
  local behind = struct.pack('>I8I8I2', NOW, ask[5], #ask[4]) .. ask[4]
  -- What a claim says of a job is the same for most of them, but for their lanes: runs that begin alike, their lengths
  -- before each.
  local said, front, said_of, said_attempt, said_size, said_names, runs, run = nil, nil, nil, nil, nil, nil, {}, 0
  local parts = {} -- heads, as they were read
  local unpack_bytes, gone = struct.unpack, HSETS[GONE] or {n = 0}
  local at = gone.n
  for i = 1, #asked do
    local q = asked[i]
    while not more do
      -- Of what has a limit, and often of what runs long, little is handed out ahead: no more is looked at.
      local room = leased <= slots and slots or limit
      if q.laned then room = q.most and soon or limit end
      local want = math.max(1, room + 1 - leased)
      if not q.laned then want = math.min(WITHIN, want) end
      local found
      if q.laned then found = lanes.peek(q, want, turn) else found = peek(q, want) end
      if not found then return nil end
      if found.n == 0 then break end
      local ids_found, places = found.ids, found.places
      local read = call('HMGET', HEAD, unpack(ids_found, 1, found.n))
      local n, names, per = 0, nil, nil
      for k = 1, found.n do
        local head = read[k]
        if not head then return nil end
        local state, place, unclaim, unsettle, last, attempt, fence, seq, size, _, _, _, named = unpack_bytes(READ, head)
        if state ~= RDY or place ~= 1 or unclaim ~= 0 or seq ~= places[k] then return nil end
        if named ~= names then
          names, per = named, kind_of(named, per)
          if per.timed == nil then per.timed = is_timed(per.task) end
        end
        payload = payload + size
        local room = (last == 1 or not per.timed) and slots or (q.laned and q.most) and soon or limit
        if leased >= room or (leased > 0 and payload > most) then
          more = true
          break
        end
        fence, attempt = fence + 1, attempt + 1
        if fence < NOW then fence = NOW end
        local kind = fence * 4 + unsettle * 2 + last
        if said_of ~= kind or said_attempt ~= attempt or said_size ~= size then
          -- Only a head that is written anew says rightly whether its next attempt is the last.
          said_of, said_attempt, said_size, said_names = kind, attempt, size, nil
          front = 'l' .. struct.pack('>BBBBBI4I8', RUNNING, 0, 0, unsettle, last, attempt, fence) .. behind ..
            struct.pack('>I4', size)
          run = run + 2
          runs[run - 1], runs[run] = 0, front
        end
        if said_names ~= names then said, said_names = front .. names, names end
        runs[run - 1] = runs[run - 1] + 1
        n, leased, per.n = n + 1, leased + 1, per.n + 1
        local id = ids_found[k]
        ids[leased], gone[at + 1], gone[at + 2] = id, id, said
        at = at + 2
      end
      if n > 0 then
        parts[#parts + 1] = read
        for k = found.n, n + 1, -1 do read[k] = nil end
        if q.laned then lanes.take(found, n) else take(q, found.f, found.band, n) end
        q.running, q.taken = q.running + n, true
      end
      if q.laned then
        q.claimable = n < found.n
        if found.n < want or n < found.n then break end
        return nil
      end
    end
  end
  if lanes and lanes.must_rebase() then return nil end
  count_moves(RDY, RUNNING)
  s.seq, s.leases = ask[5], s.leases + leased
  local next_in, suspects = -1, 0
  for i = 1, #asked do
    local q = asked[i]
    suspects = suspects + q.suspects
    local claimable
    if q.laned then claimable = q.claimable else claimable = first_band(q) end
    local wait = claimable and 0 or (q.due and q.due - NOW)
    if wait == 0 then
      q.armed = true
      waiters(q)
    end
    if wait and (next_in < 0 or wait < next_in) then next_in = wait end
    if q.taken then
      if not q.laned then
        local chunks = write_fifos(q.fifo)
        if chunks then put(FIFO, 'c' .. q.name, chunks) else remove(FIFO, 'c' .. q.name) end
      end
      save_running(q)
      q.saved = true
    end
  end
  local out = {0, more and 1 or 0, next_in, math.min(100, suspects), NOW}
  if leased > 0 then
    local all, name = concat(ids), struct.pack('>Bc0BI7', 76, ask[4], 0, ask[5])
    put(SESS, name, struct.pack('>I2', leased) .. all)
    out[6], out[7], out[8], out[9] = all, runs, call('HMGET', BODY, unpack(ids)), parts
    gone.n, HSETS[GONE], out.reply = at, gone, name
  end
  return out, asked
end

local function save_session(s, id) put(SESS, 'S' .. id, struct.pack('>BI8I4', 0, s.seq, s.leases) .. s.rest) end
