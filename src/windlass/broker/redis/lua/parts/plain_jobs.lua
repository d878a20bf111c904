-- Many alike: a plain job is handed out, ends as done, and is pruned without a table for it. Nearly all jobs are plain: nothing rare,
-- no flow, in a queue without lanes and limits, and a done job that is kept and tells no event. Claim,
-- settle and sweep try this first, job by job. What is not plain goes through handout.lua, leases.lua and lifecycle.lua,
-- which decide the same.
-- module: plain_jobs
-- include: leases
local NOTHING = {}

local function count(kind, before, after)
  local moves = kind.moves
  moves[before], moves[after] = (moves[before] or 0) - 1, (moves[after] or 0) + 1
end

local function is_plain(ask, q)
  local p = q.policy
  if ask.alone or not ask.session or q.limited or p.bands or p.age_step or p.emit == $Emit.ALL then return false end
  local l = queues.lane(q, '')
  return not q.paused and not l.paused and not l.bucket and not q.bucket and not zfirst(READY, q.in_order)
end

local function read_entries(s, from, most) -- the numbers and ids of a chunk, and their heads at once
  local numbers, ids = {}, {}
  for at = from, min(#s, from + most * $FIFO_ENTRY) - $FIFO_ENTRY, $FIFO_ENTRY do
    numbers[#numbers + 1], ids[#ids + 1] = struct.unpack('>I7c16', s, at + 1)
  end
  jobs.load(ids)
  return numbers, ids
end

-- Hand out the first jobs of a queue, as long as they are plain. Adds to `given`; returns the bytes of their payloads, and
-- whether a bound of the ask stopped it.
function plain_jobs.claim(ask, q, given, payload)
  if not is_plain(ask, q) then return payload, false end
  while true do
    local band, f = fifos.lowest(q)
    local chunk = band and fifos.first_chunk(q, band, f)
    if not chunk then return payload, false end
    local numbers, ids = read_entries(chunk, f[2] * $FIFO_ENTRY, ask.limit + 1 - #given)
    for i = 1, #ids do
      local id = ids[i]
      local head = not jobs.is_made(id) and hget(HEAD, id)
      if not head then return payload, false end
      local state, place, started, kept, attempt, fence, _, _, seq, size, arrival, due, accepted, finished, runtime, _, names, at =
        struct.unpack($HEAD_READ, head)
      local cold = jobs.read_cold(sub(head, at, -9)) -- 2 max_attempts, 7 flow, 8 rare
      if state ~= $State.READY or place ~= $IN_FIFO or seq ~= numbers[i] or cold[8] or cold[7] ~= '' then
        return payload, false
      end
      local kind = jobs.kind(names)
      local last, timed = attempt + 1 >= cold[2], queues.is_timed(kind.task)
      local room = rules.room_for(false, ask.slots, ask.soon, ask.limit, last, timed, false)
      payload = payload + size
      if #given >= room or (#given > 0 and payload > ask.max_bytes) then
        return payload, true
      end
      local written = struct.pack($HEAD_AGAIN, $State.RUNNING, 0, started, kept, attempt + 1, rules.new_fence(fence, NOW), NOW,
        ask.seq, seq, size, arrival, due, accepted, finished, runtime, #ask.session, ask.session, #names, names, sub(head, at))
      hset(HEAD, id, written)
      count(kind, $State.READY, $State.RUNNING)
      fifos.pass(q, band, f)
      q.running = q.running + 1
      queues.changed(q)
      given[#given + 1] = {id = id, written = written, rare = NOTHING}
    end
  end
end

-- End a lease as done. Returns nil if the job, or what is said of it, is not plain; else the answer.
function plain_jobs.settle(id, fence, runtime)
  local head = not jobs.is_made(id) and hget(HEAD, id)
  if not head then return nil end
  local state, _, _, _, attempt, held, claimed, ask, seq, size, arrival, due, accepted, _, _, session, names, at =
    struct.unpack($HEAD_READ, head)
  local cold = jobs.read_cold(sub(head, at, -9))
  if session == '' or cold[8] or cold[7] ~= '' then return nil end
  local kind, s = jobs.kind(names), leases.session(session)
  local q = kind.q
  if q.limited or q.policy.emit ~= $Emit.NONE or q.policy.retention == 0 then return nil end
  if not rules.is_live(state, held, fence, s and not s.ended) then return nil end
  if runtime then queues.timed(kind.task) end
  leases.leave(session, ask)
  hset(HEAD, id, struct.pack($HEAD_AGAIN, $State.DONE, 0, 1, $KEPT, attempt, held, claimed, 0, seq, size, arrival, due, accepted,
    NOW, runtime and runtime + 2 or 1, #session, session, #names, names, sub(head, at)))
  count(kind, $State.RUNNING, $State.DONE)
  zadd(TIME, struct.pack('>Bc0BI7I7c16', $KEPT, q.pre, $CLASS_DONE, NOW, arrival, id)) -- see lifecycle.lua
  q.running = q.running - 1
  queues.changed(q)
  lifecycle.note_end(id)
  return 1
end

-- Remove a done job, which `member` of TIME keeps. Returns whether it was plain.
function plain_jobs.prune(id, member)
  local head = not jobs.is_made(id) and hget(HEAD, id)
  if not head then return false end
  local state, _, _, kept, _, fence, _, _, _, size, _, _, _, finished, runtime, _, names, at = struct.unpack($HEAD_READ, head)
  local cold = jobs.read_cold(sub(head, at, -9)) -- 4 ends, 7 flow, 8 rare
  if state ~= $State.DONE or kept ~= $KEPT or runtime == 0 or cold[4] > 0 or cold[7] ~= '' or cold[8] then return false end
  if jobs.kind(names).q.policy.emit == $Emit.ALL then return false end
  zrem(TIME, member)
  jobs.bury({id = id, state = state, finished = finished, fence = fence, rare = NOTHING}, $Outcome.DONE)
  jobs.forget(id, size)
  return true
end
