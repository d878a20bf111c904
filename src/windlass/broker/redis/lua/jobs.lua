-- Jobs: the head, read once and kept as a table. x holds what few jobs have.
--
-- x: reason expires started crashes deadline finished cancel hold_key hold_reason hold_since hold_times waiting
--    replays permille message key mode window flow parent line logs children after result memos error kept
--    (children: somebody has waited for it; after: how many parents; result: its length; kept: k or p)
local BLOCKED, SCHEDULED, RDY, RUNNING, DONE, DEAD, CANCELLED = 0, 1, 2, 3, 4, 5, 6
local IN_FIFO, IN_ORDER, SUSPECT = 1, 2, 3 -- where a ready job is filed

local JOBS, CHANGED, NCHANGED = {}, {}, 0

-- A head: 1 state, 2 place, 3 to claim it is not simple, 4 to settle it is not simple, 5 its next attempt is the last
-- (a byte each), attempt (4 bytes), fence (8). While it runs, then: when it was claimed, the ask (8 each), the session
-- (2 bytes of length). Then place in its order (8), bytes (4), arrival, due, accepted (8 each), names (2 bytes of length:
-- queue NUL task NUL lane), and in msgpack what no claim changes: priority, max_attempts, band, ends, tags, revision, x;
-- then 8 bytes that say nothing.
--
-- The short ways do not write heads. What they say of a job, they say in GONE under its id, in a record that many jobs
-- share; it counts while the head says that the job is ready in a fifo. A lease: l, then what a head has up to the
-- session, bytes of payload (4), names. An end (done): e, the same up to the session with the state 7, when it ended, the
-- batch in which it is kept (8 each, 0: it is not), bytes of payload (4). Without a head it is a tombstone.
-- PAST   B number: a batch of kept ends, as their settle said them: job (16), fence, runtime + 1 or 0 (8 each), 0
--        b number: of a large one, how many they are (4) and the bytes of their payloads (7); it counts while they are as many
-- TIME   b queue NUL finished number: batches
--
-- Heads end with bytes of their place, bodies with bytes of their id (see records.py). Lua finds equal strings by a hash
-- that looks at every second, third … byte of a longer one, from the last backwards: what differs elsewhere may all be
-- in one chain. Of an id the last bytes are the same for a whole namespace.
local TAIL = '>BI6B'
local ENDED_SHORT = 7
local SAID = 33 -- bytes of an end in a batch

local function whole(id) -- a head, with what the short ways said of it; and whether they did
  local s = hget(HEAD, id)
  if not s or string.byte(s) ~= RDY or string.byte(s, 2) ~= IN_FIFO then return s end
  local said = hget(GONE, id)
  local kind = said and string.byte(said)
  if kind ~= 108 and kind ~= 101 then return s end -- l and e
  local behind = 36 + struct.unpack('>I2', said, 35)
  if kind == 101 then behind = behind + 16 end
  return sub(said, 2, behind) .. sub(s, 18), true
end

local function load_jobs(ids)
  hload(HEAD, ids)
  local said = {}
  for i = 1, #ids do
    local s = HEAD.v[ids[i]]
    if s and string.byte(s) == RDY and string.byte(s, 2) == IN_FIFO then said[#said + 1] = ids[i] end
  end
  if #said > 0 then hload(GONE, said) end
end

-- One name for what concerns batches: Lua knows at most 200. dropped: jobs that go without their tables; forgotten:
-- tombstones that do.
local BATCHES = {read = {}, dropped = {}, forgotten = {}}

function BATCHES.of(number)
  local b = BATCHES.read[number]
  if b == nil then
    local s = hget(PAST, 'B' .. n7(number)) or ''
    b = {ids = {}, said = {}, left = 0}
    for at = 1, #s, SAID do
      local id = sub(s, at, at + 15)
      b.left = b.left + 1
      b.ids[b.left], b.said[id] = id, sub(s, at, at + SAID - 1)
    end
    BATCHES.read[number] = b
  end
  return b
end

function BATCHES.only_end(j) -- the record of its only delivery
  local e = j.only_end
  if j.batch and e[9] == nil then
    local runtime = struct.unpack('>I8', BATCHES.of(j.batch).said[j.id], 25)
    e[9] = runtime > 0 and runtime - 1
  end
  return e
end

-- LINK, of jobs that belong to a flow (written by `flush`):
--   W flow NUL arrival job: all that are kept · U flow NUL class job: unfinished ones (b blocked, h held, m the others)
--   V flow NUL job: dead ones
function LINK.name_in_flow(j) -- its name among the unfinished or the dead of its flow, if it is one of them
  local flow, state = j.x.flow, j.state
  if not flow or state < BLOCKED then return nil end
  if state == DEAD then return 'V' .. flow .. NUL .. j.id end
  if state >= DONE then return nil end
  local class = state == BLOCKED and 'b' or state == SCHEDULED and j.x.hold_key and 'h' or 'm'
  return 'U' .. flow .. NUL .. class .. j.id
end

local function read_head(id, s)
  local state, place, _, _, _, attempt, fence, at = struct.unpack('>BBBBBI4I8', s)
  local claimed, lseq, session, finished, number = 0, 0, false, nil, nil
  if state == RUNNING or state == ENDED_SHORT then
    claimed, lseq, session, at = struct.unpack('>I8I8I2c0', s, at)
    if state == ENDED_SHORT then finished, number, at = struct.unpack('>I8I8', s, at) end
  end
  local seq, size, arrival, due, accepted, names
  seq, size, arrival, due, accepted, names, at = struct.unpack('>I8I4I8I8I8I2c0', s, at)
  local q, task, lane = string.match(names, '^(%Z*)%z(%Z*)%z(.*)$')
  local a = unpack_(sub(s, at, -9))
  local j = {id = id, state = state, queue = q, task = task, lane = lane, priority = a[1], max = a[2], attempt = attempt,
    fence = fence, due = due, band = a[3], seq = seq, arrival = arrival, accepted = accepted, size = size, ends = a[4],
    tags = a[5], revision = a[6], place = place, session = session, lseq = lseq, claimed = claimed, x = a[7] or {}}
  local x = j.x
  j.in_flow = LINK.name_in_flow(j)
  if finished then
    j.state, j.session, j.lseq, j.ends = DONE, false, 0, 1
    x.finished, x.started, x.kept = finished, 1, 'k'
    j.batch = number
    j.only_end = {fence, attempt, session, claimed, finished, 'done', true, false, nil, false}
  elseif x.deadline then
    j.session = false
  end
  return j
end

local function write_head(j)
  local x, running = j.x, ''
  if j.state == RUNNING then
    running = struct.pack('>I8I8I2', j.claimed, j.lseq, j.session and #j.session or 0) .. (j.session or '')
  end
  if j.only_end then -- it is not as the short way left it any more
    hset(PAST, j.id .. 'd', pack({BATCHES.only_end(j)}))
    j.only_end = nil
  end
  local unclaim = x.expires or x.after or x.memos or x.crashes
  local unsettle = j.ends > 0 or x.key or x.children or x.after or x.memos or x.cancel or x.deadline or x.logs or
    x.result or x.hold_key or x.error or x.line or x.flow
  local names, high = j.queue .. NUL .. j.task .. NUL .. j.lane, floor(j.seq / 256) % 256
  return struct.pack('>BBBBBI4I8', j.state, j.place, unclaim and 1 or 0, unsettle and 1 or 0,
    j.attempt + 1 >= j.max and 1 or 0, j.attempt, j.fence) .. running ..
    struct.pack('>I8I4I8I8I8I2', j.seq, j.size, j.arrival, j.due, j.accepted, #names) .. names ..
    pack({j.priority, j.max, j.band, j.ends, j.tags, j.revision, next(x) ~= nil and x or false}) ..
    struct.pack(TAIL, high, high * 1103823438081, j.seq % 256)
end

local function job(id)
  local j = JOBS[id]
  if j == nil then
    local s, said = whole(id)
    j = s and read_head(id, s) or false
    if said then j.said = true end
    JOBS[id] = j
  end
  return j
end

local function touch(j)
  if not j.touched then
    j.touched = true
    NCHANGED = NCHANGED + 1
    CHANGED[NCHANGED] = j
  end
end

local function is_suspect(j) return (j.x.crashes or 0) >= 2 end
local function is_terminal(state) return state >= DONE end
local function is_waiting(state) return state >= BLOCKED and state <= RDY end

local function is_expired(j)
  local at = j.x.expires
  return at and at <= NOW and not j.x.started
end

-- Tombstones: what is left of a job that is not kept (t: state, reason, fence, outcome, finished, until), and of
-- a call that a key answered (a: status, until, then the job that stands for it).
local function tombstone(id)
  local s = hget(GONE, id)
  local kind = s and sub(s, 1, 1)
  if kind == 'e' then
    local fence = struct.unpack('>I8', s, 11)
    local finished = struct.unpack('>I8', s, 37 + struct.unpack('>I2', s, 35))
    return NOW < finished + WINDOW and {DONE, false, fence, 'done', finished, finished + WINDOW} or nil
  end
  if kind ~= 't' then return nil end
  local t = unpack_(sub(s, 2))
  return NOW < t[6] and t or nil
end

local function absorbed(id) -- status and the job that stands for it
  local s = hget(GONE, id)
  if not s or sub(s, 1, 1) ~= 'a' then return nil end
  local t = unpack_(sub(s, 18))
  if NOW < t[2] then return t[1], sub(s, 2, 17) end
end

local BURIED = {}
local function buried(till) -- ids of which something is remembered until then
  local ids = BURIED[till]
  if not ids then
    ids = {}
    BURIED[till] = ids
  end
  return ids
end

local function bury(id, s, till)
  hset(GONE, id, s)
  local ids = buried(till)
  ids[#ids + 1] = id
end

-- small things kept with a job

local function past(j, what)
  if what == 'd' and j.only_end then return pack({BATCHES.only_end(j)}) end
  return hget(PAST, j.id .. what)
end
local function set_past(j, what, v) hset(PAST, j.id .. what, v) end

local function drop_past(j)
  local x = j.x
  if j.ends > 0 and not j.only_end then set_past(j, 'd', false) end
  if x.error then set_past(j, 'e', false) end
  if x.result then set_past(j, 'r', false) end
  if x.memos then set_past(j, 'm', false) end
  if x.after then set_past(j, 'a', false) end
  for i = 0, min(x.logs or 0, 100) - 1 do set_past(j, 'l' .. i, false) end
end
