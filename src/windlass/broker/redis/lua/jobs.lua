-- Jobs: the packed head, read once and kept as a table. x holds what few jobs have.
--
-- x: reason expires started crashes deadline finished cancel hold_key hold_reason hold_since hold_times waiting
--    replays permille message key mode window flow parent line logs children after result memos error kept
--    (children: somebody has waited for it; after: how many parents; result: its length; kept: k or p)
local BLOCKED, SCHEDULED, RDY, RUNNING, DONE, DEAD, CANCELLED = 0, 1, 2, 3, 4, 5, 6
local IN_FIFO, IN_ORDER, SUSPECT = 1, 2, 3 -- where a ready job is filed

local JOBS, CHANGED, NCHANGED = {}, {}, 0

local function read_head(id, s)
  local a = unpack_(s)
  return {id = id, state = a[1], queue = a[2], task = a[3], lane = a[4], priority = a[5], max = a[6],
    attempt = a[7], fence = a[8], due = a[9], band = a[10], seq = a[11], arrival = a[12], accepted = a[13],
    size = a[14], ends = a[15], tags = a[16], revision = a[17], place = a[18], session = a[19], lseq = a[20],
    lpos = a[21], claimed = a[22], x = a[23] or {}}
end

local function write_head(j)
  return pack({j.state, j.queue, j.task, j.lane, j.priority, j.max, j.attempt, j.fence, j.due, j.band, j.seq,
    j.arrival, j.accepted, j.size, j.ends, j.tags, j.revision, j.place, j.session, j.lseq, j.lpos, j.claimed,
    next(j.x) ~= nil and j.x or false})
end

local function job(id)
  local j = JOBS[id]
  if j == nil then
    local s = hget(HEAD, id)
    j = s and read_head(id, s) or false
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
  if not s or sub(s, 1, 1) ~= 't' then return nil end
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
local function bury(id, s, till) -- remember something of an id until then
  hset(GONE, id, s)
  BURIED[#BURIED + 1] = id
  BURIED.till = max(BURIED.till or 0, till)
end

-- small things kept with a job

local function past(j, what) return hget(PAST, j.id .. what) end
local function set_past(j, what, v) hset(PAST, j.id .. what, v) end

local function drop_past(j)
  local x = j.x
  if j.ends > 0 then set_past(j, 'd', false) end
  if x.error then set_past(j, 'e', false) end
  if x.result then set_past(j, 'r', false) end
  if x.memos then set_past(j, 'm', false) end
  if x.after then set_past(j, 'a', false) end
  for i = 0, min(x.logs or 0, 100) - 1 do set_past(j, 'l' .. i, false) end
end
