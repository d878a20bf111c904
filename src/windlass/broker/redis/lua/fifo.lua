-- The fifo of a queue, by band: chunks of up to 64 entries (place 7 bytes, job 16 bytes), so that a batch is one
-- field and a job costs 23 bytes. A job that leaves from the middle leaves its entry behind: an entry counts only
-- while its job is ready and has this very place. Claims pass over the others, a bounded number each.
--
-- By band: 1 first chunk, 2 entries of it that are used up, 3 last chunk, 4 entries in it, 5 jobs that are live.
local PER_CHUNK, ENTRY = 64, 23
local SKIPS = 1000 -- dead entries that one call may pass over
local SKIPPED_OUT = false -- they were not enough

local function fifos(q)
  local f = q.fifo
  if f == nil then
    local s = hget(FIFO, 'c' .. q.name)
    f = s and unpack_(s) or {}
    q.fifo = f
  end
  return f
end

local function chunk_name(q, band, n) return q.pre .. b6(band) .. n7(n) end

local function settle_pending(q, band, f) -- what was pushed becomes chunks
  local todo = f.pending
  if not todo then return end
  f.pending = nil
  local at = 1
  while at <= #todo do
    if f[4] >= PER_CHUNK then
      f[3] = f[3] + 1
      f[4] = 0
    end
    local name, fits = chunk_name(q, band, f[3]), min(#todo, at + PER_CHUNK - f[4] - 1)
    local old = f[4] > 0 and hget(FIFO, name) or ''
    hset(FIFO, name, old .. concat(todo, '', at, fits))
    f[4] = f[4] + fits - at + 1
    at = fits + 1
  end
end

local function push(q, j)
  local all = fifos(q)
  local f = all[j.band]
  if not f then
    f = {1, 0, 1, 0, 0}
    all[j.band] = f
  end
  f.pending = f.pending or {}
  f.pending[#f.pending + 1] = n7(j.seq) .. j.id
  f[5] = f[5] + 1
  q.fifo_touched = true
end

local function pull(q, j) -- it leaves its place
  local f = fifos(q)[j.band]
  f[5] = f[5] - 1
  if f.first == j then
    f.first = nil
    f[2] = f[2] + 1
  end
  q.fifo_touched = true
end

local function fifo_first(q, band) -- the first live job of a band
  local f = fifos(q)[band]
  if not f or f[5] <= 0 then return nil end
  if f.first then return f.first end
  settle_pending(q, band, f)
  while true do
    local used = f[1] == f[3] and f[4] or PER_CHUNK
    if f[2] >= used then
      if f[1] == f[3] then return nil end
      hset(FIFO, chunk_name(q, band, f[1]), false)
      f[1], f[2] = f[1] + 1, 0
      q.fifo_touched = true
    else
      local s = hget(FIFO, chunk_name(q, band, f[1]))
      local from = f[2] * ENTRY
      local id = sub(s, from + 8, from + 23)
      if JOBS[id] == nil and HEAD.v[id] == nil then
        local ahead = {}
        for at = from, min(#s, from + ENTRY * (q.ahead or 1)) - ENTRY, ENTRY do
          ahead[#ahead + 1] = sub(s, at + 8, at + 23)
        end
        hload(HEAD, ahead)
      end
      local j = job(id)
      if j and j.state == RDY and j.place == IN_FIFO and j.seq == r7(s, from + 1) then
        f.first = j
        return j
      end
      if SKIPS == 0 then
        SKIPPED_OUT = true
        return nil
      end
      SKIPS = SKIPS - 1
      f[2] = f[2] + 1
      q.fifo_touched = true
    end
  end
end

local function flush_fifo(q)
  local all = q.fifo
  for band, f in pairs(all) do
    settle_pending(q, band, f)
    f.first = nil
    if f[1] < f[3] and f[2] >= PER_CHUNK then
      hset(FIFO, chunk_name(q, band, f[1]), false)
      f[1], f[2] = f[1] + 1, 0
    end
    if f[1] == f[3] and f[2] >= f[4] then
      hset(FIFO, chunk_name(q, band, f[1]), false)
      all[band] = nil
    end
  end
  hset(FIFO, 'c' .. q.name, next(all) ~= nil and pack(all) or false)
end
