-- The short way of a claim: leases from the fifos of plain queues and of their lanes, in a session.
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
  if not q or q.paused then return false end
  if q.laned then
    if range(RING, 'W' .. q.pre) then return false end
  elseif not q.unlimited or call('HEXISTS', LANE, 'l' .. q.pre) == 1 then
    return false
  end
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

local READ = '>BBBBBI4I8I8I4I8I8I8I2c0'
local CONSTANT = 18 -- bytes of a head that a claim changes, and one
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

local function look_at(found) -- reads the heads; nil if one of them is not plain
  local ids, places, got = found.ids, found.places, found.n
  local heads = call('HMGET', HEAD, unpack(ids, 1, got))
  local fences, attempts, lasts, sizes, names = {}, {}, {}, {}, {}
  local unpack_bytes = struct.unpack
  for i = 1, got do
    local h = heads[i]
    if not h then return nil end
    local state, place, unclaim, _, last, attempt, fence, seq, size, _, _, _, named = unpack_bytes(READ, h)
    if state ~= RDY or place ~= 1 or unclaim ~= 0 or seq ~= places[i] then return nil end
    fences[i], attempts[i], lasts[i], sizes[i], names[i] = fence, attempt, last, size, named
  end
  found.heads, found.fences, found.attempts, found.lasts, found.sizes, found.names = heads, fences, attempts, lasts,
    sizes, names
  return found
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
  if ask[7] or not ask[4] or ask[5] ~= s[5] + 1 then return nil end
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
  local leased, ids, heads, slots, limit, most = 0, {}, {}, ask[2], ask[3], ask[8]
  local behind = struct.pack('>I8I8I2', NOW, ask[5], #ask[4]) .. ask[4]
  local first, first_of = nil, nil -- what a claim changes is the same for most jobs
  for i = 1, #asked do
    local q = asked[i]
    while not more do
      -- What has a limit, and often what runs long, is handed out against free slots only: no more is looked at.
      local room = leased <= slots and slots or limit
      if q.laned then room = q.most and slots or limit end
      local want = math.max(1, room + 1 - leased)
      if not q.laned then want = math.min(WITHIN, want) end
      local found
      if q.laned then found = lanes.peek(q, want) else found = peek(q, want) end
      if not found then return nil end
      if found.n == 0 then break end
      if not look_at(found) then return nil end
      local n, names, per = 0, nil, nil
      for k = 1, found.n do
        if found.names[k] ~= names then
          names = found.names[k]
          per = read_names(names)
        end
        payload = payload + found.sizes[k]
        local room = (found.lasts[k] == 1 or (q.laned and q.most) or not is_timed(per.task)) and slots or limit
        if leased >= room or (leased > 0 and payload > most) then
          more = true
          break
        end
        local fence, attempt, last, head = found.fences[k] + 1, found.attempts[k] + 1, found.lasts[k], found.heads[k]
        if fence < NOW then fence = NOW end
        local unsettle = string.byte(head, 4)
        local kind = fence * 4 + unsettle * 2 + last
        if first_of ~= kind or first.attempt ~= attempt then
          -- Only a head that is written anew says rightly whether its next attempt is the last.
          first_of, first = kind, {attempt = attempt,
            bytes = struct.pack('>BBBBBI4I8', RUNNING, 0, 0, unsettle, last, attempt, fence) .. behind}
        end
        n, leased, per.tally.n = n + 1, leased + 1, per.tally.n + 1
        ids[leased] = found.ids[k]
        heads[leased] = first.bytes .. sub(head, CONSTANT)
      end
      if n > 0 then
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
  s[5], s[8] = ask[5], s[8] + leased
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
        if next(q.fifo) ~= nil then put(FIFO, 'c' .. q.name, pack(q.fifo)) else remove(FIFO, 'c' .. q.name) end
      end
      save_running(q)
      q.saved = true
    end
  end
  local out = {0, more and 1 or 0, next_in, math.min(100, suspects), NOW}
  if leased > 0 then
    local bodies, all = call('HMGET', BODY, unpack(ids)), concat(ids)
    local name, list, at = struct.pack('>c0BI7', ask[4], 0, ask[5]), HSETS[HEAD] or {n = 0}, nil
    at = list.n
    put(SESS, 'L' .. name, struct.pack('>I2', leased) .. all)
    out[6] = all
    for i = 1, leased do
      local h = heads[i]
      list[at + 1], list[at + 2] = ids[i], h
      out[5 + 2 * i], out[6 + 2 * i] = h, bodies[i]
      at = at + 2
    end
    list.n, HSETS[HEAD] = at, list
    out.reply = 'L' .. name
  end
  return out, asked
end

local function save_session(s, id) put(SESS, 'S' .. id, pack(s)) end
