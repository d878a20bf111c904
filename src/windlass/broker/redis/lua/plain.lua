-- The short way for plain jobs: queues in strict order, without events but of ends, without limits but `lane_concurrency`; jobs
-- without key, parents, delay or expiry. It does what the long way does, in fewer commands and without its
-- fixed cost (some 200 functions are made at every call of a script that includes it). Whatever is not plain is
-- found out before anything is written, and goes the long way: `otherwise()`.
--
-- What it knows of a head (see jobs.lua) is cut out and put together as bytes: no table is made for a job.
--
-- SET F queue, kept by keeping.lua for queues whose policy is plain, each a byte of 0 or 1: unlimited; no limits but
-- lane_concurrency; done jobs are not kept; results are; then lane_concurrency or 0 (8 bytes). Of a queue that emits ends
-- the first is 2, 4 more for the first and 8 for the second, which is 0: who does not know of that goes the long way.
-- Every call makes the functions and tables of its script anew, and every name that a function uses of its
-- surroundings. So there are few here, and those for lanes are made when a queue has some (`plain_lanes`).
-- include: short, chunks
-- when needed: plain_lanes
local RDY, RUNNING, DONE = 2, 3, 4

local CTX = unpack_(ARGV[1])
local NUMBERS_READ = call('HGET', META, 'n')
local N = NUMBERS_READ and {struct.unpack(NUMBERS, NUMBERS_READ)} -- mark, live, swept, left, 5 seq, version, 7 bytes, log …, 10 and 11 gone, format
local NOW = CTX[1]
if N then
  if not NOW then
    local t = call('TIME')
    NOW = t[1] * 1000000 + t[2]
  end
  if NOW < N[1] and NOW + CTX[2] >= N[1] then NOW = N[1] end
end

-- what is to be written: by key, fields and values with their number; fields to be removed; counts
local HSETS, HDELS, DELTAS = {}, {}, {}

local function put(key, field, value)
  local list = HSETS[key]
  if not list then
    list = {n = 0}
    HSETS[key] = list
  end
  local n = list.n
  list[n + 1], list[n + 2], list.n = field, value, n + 2
end

local function remove(key, field)
  local list = HDELS[key]
  if not list then
    list = {n = 0}
    HDELS[key] = list
  end
  local n = list.n + 1
  list[n], list.n = field, n
end

-- How many jobs of a queue and task (kind: queue NUL task NUL) a verb has met since it last counted their moves.
local TALLIES = {}
local function tally(kind)
  local t = TALLIES[kind]
  if not t then
    t = {n = 0, kind = false, size = 0, queue = false, task = false, q = false, fronts = false, timed = nil}
    TALLIES[kind] = t
  end
  return t
end

local function count_moves(from, to)
  for kind, t in pairs(TALLIES) do
    if t.n > 0 then
      if from then DELTAS[kind .. from] = (DELTAS[kind .. from] or 0) - t.n end
      DELTAS[kind .. to] = (DELTAS[kind .. to] or 0) + t.n
      t.n = 0
    end
  end
end

-- The kind of a job by its names (queue NUL task NUL lane): there are few, however many lanes. `known` is the kind of the
-- job before, which most have, too.
local function kind_of(names, known)
  if known and sub(names, 1, known.size) == known.kind then return known end
  local kind, q, task = string.match(names, '^((%Z*)%z(%Z*)%z)')
  if not kind then return nil end
  local t = tally(kind)
  if not t.kind then t.kind, t.size, t.queue, t.task, t.q, t.timed, t.fronts = kind, #kind, q, task, false, nil, {} end
  return t
end

-- A queue that is plain; else nil. most: how many of a lane may run.
local lanes
local function plain_queue(name)
  local got = call('HMGET', SET, 'F' .. name, 'R' .. name, 'A' .. name)
  if not got[1] then return nil end
  local unlimited, by_lane, unkept, results, most = struct.unpack('>BBBBI8', got[1])
  local emits = unlimited > 1
  if emits then
    by_lane = unlimited >= 8 and 1 or 0
    unlimited = unlimited % 8 >= 4 and 1 or 0
  end
  local paused, laned, running, kept, bucket = 0, 0, 0, 0, ''
  if got[2] then
    paused, laned, running, kept = struct.unpack('>BBI4I6', got[2])
    bucket = sub(got[2], 13)
  end
  if laned == 1 then
    if by_lane == 0 then return nil end
    lanes = lanes or plain_lanes(call, N, NOW, put, remove)
  end
  return {name = name, pre = name .. NUL, unlimited = unlimited == 1, unkept = unkept == 1, results = results == 1,
    most = most > 0 and most, paused = paused == 1, laned = laned == 1, running = running, kept = kept, bucket = bucket,
    wake = got[3], emits = emits}
end

local function save_running(q)
  put(SET, 'R' .. q.name, struct.pack('>BBI4I6', q.paused and 1 or 0, q.laned and 1 or 0, q.running, q.kept) .. q.bucket)
end

local function fifos(q)
  if not q.fifo then
    q.fifo = read_fifos(call('HGET', FIFO, 'c' .. q.name))
  end
  return q.fifo
end

local function chunk_name(q, band, n)
  return q.pre .. struct.pack('>I6I7', band + BAND_ZERO, n)
end

local function waiters(q) -- whom to tell, read before anything is written
  if q.wake == 'W' then
    local p = 'w' .. q.name .. NUL
    q.waiting = call('ZRANGEBYLEX', NAMES, '[' .. p, '(' .. p .. LAST, 'LIMIT', 0, 10)
  end
end

local function wake(q)
  if q.wake == 'A' then return end
  local p = #q.name + 2
  for k = 1, q.waiting and #q.waiting or 0 do
    local m = q.waiting[k]
    local split = string.find(m, NUL, p + 8, true)
    call('ZREM', NAMES, m)
    if call('PUBLISH', sub(m, p + 8, split - 1), sub(m, split + 1)) > 0 then return end
  end
  call('HSET', SET, 'A' .. q.name, 'A')
end

local function write()
  local numbers = struct.pack(NUMBERS, unpack(N, 1, 12))
  if numbers ~= NUMBERS_READ then call('HSET', META, 'n', numbers) end
  for key, list in pairs(HSETS) do
    for from = 1, list.n, 2000 do call('HSET', key, unpack(list, from, math.min(from + 1999, list.n))) end
  end
  for key, list in pairs(HDELS) do
    for from = 1, list.n, 2000 do call('HDEL', key, unpack(list, from, math.min(from + 1999, list.n))) end
  end
  for at, by in pairs(DELTAS) do
    if by ~= 0 and call('HINCRBY', COUNT, at, by) == 0 then call('HDEL', COUNT, at) end
  end
end
