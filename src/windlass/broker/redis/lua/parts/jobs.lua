-- Jobs: the head of a job is small and all that changes; it is read once and kept as a table.
--
-- HEAD  job: 1 state, 2 place, 3 it has started, 4 it is kept (0, k or p; see lifecycle.lua) (a byte each), attempt (4),
--       fence, claimed, ask, number in its order (8 each), bytes (4), arrival, due, accepted, finished, runtime (8 each),
--       session (2 bytes of length), names (2 bytes of length: queue NUL task NUL lane); then in msgpack what claims do not
--       change: priority, max_attempts, band, ends, tags, revision, flow, rare; then 8 bytes that say nothing
-- BODY  job: headers and payload (see records.py)
-- PAST  job d: deliveries · e: error · r: result · a: parents (16 bytes and a policy each) · m: memos · l number: lines
-- GONE  job: t and state, reason, fence, outcome, finished, until: a tombstone, of a job that is not kept
--       a, the job that stands for it (16 bytes), status, until: of a call that a unique key answered
--       P number: a page of such ids, and until when they are remembered · M: the latest such time
--
-- The delivery that ended a job as done is told by its head: runtime is 1 then, or 2 more than it was. All others are in
-- PAST, and `ends` counts them.
--
-- rare: what few jobs have. reason expires crashes deadline cancel hold_key hold_reason hold_since hold_times waiting
--       replays permille message key mode window parent line logs children after result memos error
--       (children: somebody has waited for it; after: how many parents; result: its length)
--
-- Heads end with bytes of their number, bodies with bytes of their id. Lua finds equal strings by a hash that looks at
-- every second, third … byte of a longer one, from the last backwards, and the last bytes of an id are those of its
-- namespace: heads that differ elsewhere would all be in one chain, and each would be compared with all others. So a head
-- is packed by one call: its first part alone would be such a string.
-- LINK  of jobs of a flow: W flow NUL arrival job: all that are kept · U flow NUL class job: unfinished ones (b blocked,
--       h held, m the others) · V flow NUL job: dead ones
-- module: jobs
-- include: queues
local JOBS, CHANGED, KINDS, COLD, FORGOTTEN = {}, {}, {}, {}, {}
local NOT_KEPT, KEPT = 0, {[0] = false, [$KEPT] = 'k', [112] = 'p'}

function jobs.kind(names) -- what jobs of one queue, task and lane share; moves: how many came into a state, or left it
  local kind = KINDS[names]
  if not kind then
    local q, task, lane = string.match(names, '^(%Z*)%z(%Z*)%z(.*)$')
    kind = {names = names, queue = q, task = task, lane = lane, moves = {}, q = queues.get(q)}
    KINDS[names] = kind
  end
  return kind
end

function jobs.read_cold(s) -- the part in msgpack; of jobs with nothing rare it is mostly the same
  local cold = COLD[s]
  if not cold then
    cold = decode(s)
    cold.text = s
    if not cold[8] then COLD[s] = cold end
  end
  return cold
end

local function name_in_flow(j) -- its name among the unfinished or the dead of its flow; false: it is neither
  local state = j.state
  if j.flow == '' or state < $State.BLOCKED then return false end
  if state == $State.DEAD then return 'V' .. j.flow .. NUL .. j.id end
  if state >= $State.DONE then return false end
  local class = 'm'
  if state == $State.BLOCKED then
    class = 'b'
  elseif state == $State.SCHEDULED and j.rare.hold_key then
    class = 'h'
  end
  return 'U' .. j.flow .. NUL .. class .. j.id
end

local function read_head(id, s)
  local state, place, started, kept, attempt, fence, claimed, ask, seq, size, arrival, due, accepted, finished, runtime,
    session, names, at = struct.unpack($HEAD_READ, s)
  local kind, cold = jobs.kind(names), jobs.read_cold(sub(s, at, -9))
  local j = {id = id, state = state, priority = cold[1], max_attempts = cold[2], attempt = attempt, fence = fence, due = due, band = cold[3], seq = seq, arrival = arrival,
    accepted = accepted, size = size, ends = cold[4], tags = cold[5], revision = cold[6], flow = cold[7], place = place,
    session = session ~= '' and session, ask = ask, claimed = claimed, started = started == 1, kept = KEPT[kept],
    finished = finished, runtime = runtime, rare = cold[8] or {}, kind = kind, cold = cold, touched = false, written = false,
    removed = false, is_new = false, in_flow = false}
  if j.flow ~= '' then j.in_flow = name_in_flow(j) end
  return j
end

local function is_same(c, j)
  return c and c[1] == j.priority and c[2] == j.max_attempts and c[3] == j.band and c[4] == j.ends and c[5] == j.tags
    and c[6] == j.revision and c[7] == j.flow and not c[8]
end

local last_cold
local function cold_text(j)
  if next(j.rare) ~= nil then
    return encode({j.priority, j.max_attempts, j.band, j.ends, j.tags, j.revision, j.flow, j.rare})
  end
  if is_same(j.cold, j) then return j.cold.text end
  if not is_same(last_cold, j) then
    last_cold = {j.priority, j.max_attempts, j.band, j.ends, j.tags, j.revision, j.flow, false}
    last_cold.text = encode({unpack(last_cold, 1, 8)})
  end
  return last_cold.text
end

function jobs.write_head(j)
  local session, names, seq = j.session or '', j.kind.names, j.seq
  local low = seq % 256
  local high = (seq - low) / 256 % 256
  return struct.pack($HEAD_FORM, j.state, j.place, j.started and 1 or 0,
    j.kept and byte(j.kept) or NOT_KEPT, j.attempt, j.fence, j.claimed, j.ask, seq, j.size, j.arrival, j.due, j.accepted,
    j.finished, j.runtime, #session, session, #names, names, cold_text(j), high, high * 1103823438081, low)
end

function jobs.load(ids) hload(HEAD, ids) end

function jobs.get(id) -- false: there is none
  local j = JOBS[id]
  if j == nil then
    local s = hget(HEAD, id)
    j = s and read_head(id, s) or false
    JOBS[id] = j
  end
  return j
end

function jobs.is_made(id) return JOBS[id] ~= nil end -- whether there is a table for it, which may say more than its head
function jobs.is_read(id) return JOBS[id] ~= nil or (HEAD.v and HEAD.v[id] ~= nil) end

function jobs.add(j)
  JOBS[j.id] = j
  jobs.touch(j)
end

function jobs.touch(j) -- its head is to be written
  if not j.touched then
    j.touched = true
    CHANGED[#CHANGED + 1] = j
  end
end

function jobs.forget(id, size) -- its head and its body
  N.bytes = N.bytes - size
  hset(HEAD, id, false)
  hset(BODY, id, false)
  JOBS[id] = false
  FORGOTTEN[#FORGOTTEN + 1] = id
end

function jobs.remove(j)
  jobs.touch(j)
  jobs.forget(j.id, j.size)
  j.removed = true
  local rare = j.rare
  if j.ends > 0 then jobs.set_past(j, 'd', false) end
  if rare.error then jobs.set_past(j, 'e', false) end
  if rare.result then jobs.set_past(j, 'r', false) end
  if rare.memos then jobs.set_past(j, 'm', false) end
  if rare.after then jobs.set_past(j, 'a', false) end
  for i = 0, min(rare.logs or 0, $LOG_LINES) - 1 do jobs.set_past(j, 'l' .. i, false) end
end

function jobs.is_suspect(j) return (j.rare.crashes or 0) >= $SUSPECT_AFTER end
function jobs.is_finished(state) return state >= $State.DONE end
function jobs.is_waiting(state) return state >= $State.BLOCKED and state <= $State.READY end

function jobs.is_expired(j)
  local at = j.rare.expires
  return at and at <= NOW and not j.started
end

function jobs.past(j, what) return hget(PAST, j.id .. what) end
function jobs.set_past(j, what, v) hset(PAST, j.id .. what, v) end

-- what is remembered of jobs that are gone, and of calls that a key answered

function jobs.tombstone(id)
  local s = hget(GONE, id)
  if not s or byte(s) ~= 116 then return nil end -- t
  local t = decode(sub(s, 2))
  return NOW < t[6] and t or nil
end

function jobs.absorbed(id) -- the status that was answered, and the job that stands for the call
  local s = hget(GONE, id)
  if not s or byte(s) ~= 97 then return nil end -- a
  local t = decode(sub(s, 18))
  if NOW < t[2] then return t[1], sub(s, 2, 17) end
end

local BURIED = nil -- ids by the time until which something is remembered of them
local function remember(id, s, till)
  hset(GONE, id, s)
  BURIED = BURIED or {}
  BURIED[till] = BURIED[till] or {}
  local ids = BURIED[till]
  ids[#ids + 1] = id
end

local last_grave, last_text -- jobs that end alike in one call share a tombstone
function jobs.bury(j, outcome)
  local till = j.finished + WINDOW
  if till <= NOW then return end
  local reason = j.rare.reason or false
  local g = last_grave
  if not (g and g[1] == j.state and g[2] == reason and g[3] == j.fence and g[4] == outcome and g[5] == j.finished) then
    last_grave = {j.state, reason, j.fence, outcome, j.finished, till}
    last_text = 't' .. encode(last_grave)
  end
  remember(j.id, last_text, till)
end

function jobs.absorb(id, status, of)
  remember(id, 'a' .. of .. encode({status, NOW + WINDOW}), NOW + WINDOW)
end

function jobs.forget_grave(id)
  if hget(GONE, id) then hset(GONE, id, false) end
end

-- Pages of ids, numbered, by the time until which something is remembered of them. A page of an earlier time comes out of
-- turn, as after a clock that was set back, and is found by its time (TIME G).
local function flush_graves()
  if not BURIED then return end
  local times = {}
  for till in pairs(BURIED) do times[#times + 1] = till end
  table.sort(times)
  local latest = hget(GONE, 'M')
  latest = latest and read7(latest, 1) or 0
  for i = 1, #times do
    local till, ids = times[i], BURIED[times[i]]
    for from = 1, #ids, 128 do
      local page = bytes7(N.grave_end)
      hset(GONE, 'P' .. page, bytes7(till) .. concat(ids, '', from, min(from + 127, #ids)))
      if till < latest then zadd(TIME, 'G' .. bytes7(till) .. page) end
      N.grave_end = N.grave_end + 1
    end
  end
  if times[#times] > latest then hset(GONE, 'M', bytes7(times[#times])) end
end

local function list_in_flow(j)
  local name = not j.removed and name_in_flow(j)
  if name ~= j.in_flow then
    if j.in_flow then zrem(LINK, j.in_flow) end
    if name then zadd(LINK, name) end
  end
  local all = 'W' .. j.flow .. NUL .. bytes7(j.arrival) .. j.id
  if j.is_new and not j.removed then
    zadd(LINK, all)
  elseif j.removed and not j.is_new then
    zrem(LINK, all)
  end
end

function jobs.flush() -- the changes of the counts, and of ARRIVED
  local added = {} -- arrivals and ids that enter ARRIVED; those that are forgotten leave it
  for i = 1, #CHANGED do
    local j = CHANGED[i]
    if j.flow ~= '' then list_in_flow(j) end
    if not j.removed then
      if j.is_new then
        added[#added + 1] = j.arrival
        added[#added + 1] = j.id
      end
      j.written = jobs.write_head(j)
      hset(HEAD, j.id, j.written)
    end
  end
  flush_graves()
  local changes = {}
  for _, kind in pairs(KINDS) do
    for state, by in pairs(kind.moves) do
      if by ~= 0 then
        local field = kind.queue .. NUL .. kind.task .. NUL .. state
        changes[field] = (changes[field] or 0) + by
      end
    end
  end
  return changes, added, FORGOTTEN
end
