-- Fifos: the ready jobs of a queue, or of one of its lanes, by band, in the order in which they were filed.
--
-- FIFO  queue NUL band number, and NUL queue NUL lane NUL band number: chunks of up to 64 entries (16 of a lane), each the
--       number of a job in its order (7 bytes) and its id (16). So a batch is one field.
--       c queue: per band, the band and the record below, 26 bytes. Those of a lane stand in its own record.
--
-- A record: 1 first chunk, 2 entries of it that are used up, 3 last chunk, 4 entries in it, 5 jobs that are ready.
-- A job that leaves from the middle leaves its entry behind: an entry counts only while its job is ready and has this very
-- number. Claims pass over the others, a bounded number each, and so does every call that makes more of them.
-- module: fifos
-- include: jobs
local ENTRY, RECORD = $FIFO_ENTRY, $FIFO_FORM
local IN_FIFO = $IN_FIFO
local SKIPS = 1000 -- dead entries that one call passes over

function fifos.owner(q, lane) -- the queue for what has no lane, else the lane
  if lane == '' then return q end
  return queues.lane(q, lane)
end

function fifos.of(owner) -- records by band
  local all = owner.fifo
  if all == nil then
    all = {}
    local s = hget(FIFO, 'c' .. owner.name) or ''
    for at = 1, #s, 26 do
      local band, first, used, last, filled, ready = struct.unpack(RECORD, s, at)
      all[band - BAND_ZERO] = {first, used, last, filled, ready, pushed = false, first = false, text = false}
    end
    owner.fifo = all
  end
  return all
end

local function chunk_name(owner, band, n) return owner.chunk_prefix .. band_bytes(band) .. bytes7(n) end


local function make_chunks(owner, band, f) -- of what was pushed
  local pushed = f.pushed
  if not pushed then return end
  f.pushed = false
  local at, most = 1, owner.per_chunk
  while at <= #pushed do
    if f[4] >= most then
      f[3] = f[3] + 1
      f[4] = 0
    end
    local name, last = chunk_name(owner, band, f[3]), min(#pushed, at + most - f[4] - 1)
    local old = f[4] > 0 and hget(FIFO, name) or ''
    hset(FIFO, name, old .. concat(pushed, '', at, last))
    f.first = false
    f[4] = f[4] + last - at + 1
    at = last + 1
  end
end

function fifos.first_chunk(owner, band, f) -- the text of the first chunk with an entry that is not used up; nil: there is none
  make_chunks(owner, band, f)
  while f[2] >= (f[1] == f[3] and f[4] or owner.per_chunk) do
    if f[1] == f[3] then return nil end
    hset(FIFO, chunk_name(owner, band, f[1]), false)
    f[1], f[2] = f[1] + 1, 0
    owner.fifo_touched = true
  end
  if f.first ~= f[1] then f.first, f.text = f[1], hget(FIFO, chunk_name(owner, band, f[1])) end
  return f.text
end

function fifos.lowest(owner) -- the lowest band with a ready job, and its record
  local low, record
  for band, f in pairs(fifos.of(owner)) do
    if f[5] > 0 and (not low or band < low) then low, record = band, f end
  end
  return low, record
end

function fifos.pass(owner, band, f) -- the first entry is handed out
  f[2], f[5] = f[2] + 1, f[5] - 1
  owner.firsts[band], owner.fifo_touched = nil, true
end

function fifos.push(q, j)
  local owner = fifos.owner(q, j.kind.lane)
  local all = fifos.of(owner)
  local f = all[j.band]
  if not f then
    f = {1, 0, 1, 0, 0, pushed = false, first = false, text = false}
    all[j.band] = f
  end
  f.pushed = f.pushed or {}
  f.pushed[#f.pushed + 1] = struct.pack('>I7c16', j.seq, j.id)
  f[5] = f[5] + 1
  owner.fifo_touched = true
end

function fifos.pull(q, j) -- it leaves its place
  local owner = fifos.owner(q, j.kind.lane)
  local f = fifos.of(owner)[j.band]
  f[5] = f[5] - 1
  if owner.firsts[j.band] == j then
    owner.firsts[j.band] = nil
    f[2] = f[2] + 1
  else
    owner.has_gaps = true
  end
  owner.fifo_touched = true
end

local function is_ready_at(j, seq) return j and j.state == $State.READY and j.place == IN_FIFO and j.seq == seq end

local function look_ahead(owner, s, from) -- read the heads that a claim will want next, at once
  local ids = {}
  local q = owner.queue or owner
  for at = from, min(#s, from + ENTRY * q.ahead) - ENTRY, ENTRY do ids[#ids + 1] = sub(s, at + 8, at + ENTRY) end
  jobs.load(ids)
end

-- The first ready job of a band, remembered in `firsts`. `fifos.exhausted` says that the bound on dead entries was met.
function fifos.first(owner, band)
  local f = fifos.of(owner)[band]
  if not f or f[5] <= 0 then return nil end
  if owner.firsts[band] then return owner.firsts[band] end
  while true do
    local s = fifos.first_chunk(owner, band, f)
    if not s then return nil end
    local from = f[2] * ENTRY
    local seq, id = struct.unpack('>I7c16', s, from + 1)
    if not jobs.is_read(id) then look_ahead(owner, s, from) end
    local j = jobs.get(id)
    if is_ready_at(j, seq) then
      owner.firsts[band] = j
      return j
    end
    if SKIPS == 0 then
      fifos.exhausted = true
      return nil
    end
    SKIPS = SKIPS - 1
    f[2] = f[2] + 1
    owner.fifo_touched = true
  end
end

function fifos.read_ahead(owners, most) -- the first chunks of many lanes, and the first heads of each
  local names, ids = {}, {}
  for i = 1, #owners do
    for band, f in pairs(owners[i].fifo) do
      if f[5] > 0 then names[#names + 1] = chunk_name(owners[i], band, f[1]) end
    end
  end
  hload(FIFO, names)
  local k = 0
  for i = 1, #owners do
    for _, f in pairs(owners[i].fifo) do
      if f[5] > 0 then
        k = k + 1
        local s = hget(FIFO, names[k]) or ''
        local from = f[2] * ENTRY
        for at = from, min(#s, from + ENTRY * most) - ENTRY, ENTRY do ids[#ids + 1] = sub(s, at + 8, at + ENTRY) end
      end
    end
  end
  jobs.load(ids)
end

function fifos.each(owner, band, most, visit) -- entries of a band from the first; visit(job or nil, number)
  local f, looked = fifos.of(owner)[band], 0
  if not f or f[5] <= 0 then return 0 end
  make_chunks(owner, band, f)
  for n = f[1], f[3] do
    if looked >= most then break end
    local s, ids = hget(FIFO, chunk_name(owner, band, n)) or '', {}
    for at = (n == f[1] and f[2] or 0) * ENTRY, #s - ENTRY, ENTRY do ids[#ids + 1] = sub(s, at + 8, at + ENTRY) end
    jobs.load(ids)
    for at = (n == f[1] and f[2] or 0) * ENTRY, #s - ENTRY, ENTRY do
      local seq = read7(s, at + 1)
      local j = jobs.get(sub(s, at + 8, at + ENTRY))
      looked = looked + 1
      if visit(is_ready_at(j, seq) and j or nil, seq) == false then return looked end
    end
  end
  return looked
end

local EMPTY_CHUNKS = 100 -- of a fifo without ready jobs, that go at once

function fifos.flush(owner)
  local all, s, q = owner.fifo, false, owner.queue or owner
  q.ahead = max(q.ahead, owner.per_chunk)
  for band, f in pairs(all) do
    make_chunks(owner, band, f)
    if owner.has_gaps then fifos.first(owner, band) end
    if f[5] == 0 and f[3] - f[1] < EMPTY_CHUNKS then
      for n = f[1], f[3] - 1 do hset(FIFO, chunk_name(owner, band, n), false) end
      f[1], f[2] = f[3], f[4]
    end
    if f[1] < f[3] and f[2] >= owner.per_chunk then
      hset(FIFO, chunk_name(owner, band, f[1]), false)
      f[1], f[2] = f[1] + 1, 0
    end
    if f[1] == f[3] and f[2] >= f[4] then
      hset(FIFO, chunk_name(owner, band, f[1]), false)
      all[band] = nil
    else
      s = (s or '') .. struct.pack(RECORD, band + BAND_ZERO, f[1], f[2], f[3], f[4], f[5])
    end
  end
  if not owner.queue then hset(FIFO, 'c' .. owner.name, s) end
end
