-- The fifos of a queue and of its lanes, by band: chunks of up to 64 entries (16 of a lane) (place 7 bytes, job 16 bytes), so that a batch is one
-- field and a job costs 23 bytes. A job that leaves from the middle leaves its entry behind: an entry counts only
-- while its job is ready and has this very place. Claims pass over the others, a bounded number each, and so does every
-- call that makes more of them.
-- include: chunks
local PER_CHUNK, PER_LANE_CHUNK, ENTRY = 64, 16, 23
local SKIPS = 1000 -- dead entries that one call may pass over
local SKIPPED_OUT = false -- they were not enough

local function fifo_owner(q, lane) -- the queue for what has no lane, else the lane
  if lane == '' then return q end
  return lane_of(q, lane)
end

-- The first job of a band, once it was looked for, is remembered beside the fifos (`firsts`) and not in them: those of a
-- lane are written with it, and another call would take what was remembered for the job.
local function fifos(q) -- of a queue or a lane
  local f = q.fifo
  if f == nil then
    local s = hget(FIFO, 'c' .. q.name)
    f = read_fifos(s)
    q.fifo = f
  end
  q.firsts = q.firsts or {}
  return f
end

local function per_chunk(q) return q.chunks and PER_LANE_CHUNK or PER_CHUNK end
local function chunk_name(q, band, n) return (q.chunks or q.pre) .. b6(band) .. n7(n) end

local function settle_pending(q, band, f) -- what was pushed becomes chunks
  local pending = f.pending
  if not pending then return end
  f.pending = nil
  local at, most = 1, per_chunk(q)
  while at <= #pending do
    if f[4] >= most then
      f[3] = f[3] + 1
      f[4] = 0
    end
    local name, fits = chunk_name(q, band, f[3]), min(#pending, at + most - f[4] - 1)
    local old = f[4] > 0 and hget(FIFO, name) or ''
    hset(FIFO, name, old .. concat(pending, '', at, fits))
    f[4] = f[4] + fits - at + 1
    at = fits + 1
  end
end

local function push(queue_of, j)
  local q = fifo_owner(queue_of, j.lane)
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

local function pull(queue_of, j) -- it leaves its place
  local q = fifo_owner(queue_of, j.lane)
  local f = fifos(q)[j.band]
  f[5] = f[5] - 1
  if q.firsts[j.band] == j then
    q.firsts[j.band] = nil
    f[2] = f[2] + 1
  else
    q.has_gaps = true
  end
  q.fifo_touched = true
end

local function fifo_first(q, band) -- the first live job of a band
  local f = fifos(q)[band]
  if not f or f[5] <= 0 then return nil end
  if q.firsts[band] then return q.firsts[band] end
  settle_pending(q, band, f)
  while true do
    local used = f[1] == f[3] and f[4] or per_chunk(q)
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
        load_jobs(ahead)
      end
      local j = job(id)
      if j and j.state == RDY and j.place == IN_FIFO and j.seq == r7(s, from + 1) then
        q.firsts[band] = j
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

local EMPTY_CHUNKS = 100 -- of a fifo without live jobs, that go at once

local function flush_fifo(q)
  local all = q.fifo
  q.ahead = q.ahead or PER_CHUNK
  for band, f in pairs(all) do
    settle_pending(q, band, f)
    if q.has_gaps then fifo_first(q, band) end
    if f[5] == 0 and f[3] - f[1] < EMPTY_CHUNKS then
      for n = f[1], f[3] - 1 do hset(FIFO, chunk_name(q, band, n), false) end
      f[1], f[2] = f[3], f[4]
    end
    if f[1] < f[3] and f[2] >= per_chunk(q) then
      hset(FIFO, chunk_name(q, band, f[1]), false)
      f[1], f[2] = f[1] + 1, 0
    end
    if f[1] == f[3] and f[2] >= f[4] then
      hset(FIFO, chunk_name(q, band, f[1]), false)
      all[band] = nil
    end
  end
  if not q.chunks then hset(FIFO, 'c' .. q.name, write_fifos(all)) end
end
