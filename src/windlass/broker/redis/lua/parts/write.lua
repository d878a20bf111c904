-- The second half of every script that writes: nothing was written before this, and nothing in it can fail.
-- include: leases, wakes

local function flush_hash(h)
  local sets, removed, n, r = {}, {}, 0, 0
  local v = h.v
  for field in pairs(h.changed) do
    local value = v[field]
    if value then
      sets[n + 1], sets[n + 2] = field, value
      n = n + 2
    else
      r = r + 1
      removed[r] = field
    end
  end
  for from = 1, n, 2 * CHUNK do call('HSET', h.k, unpack(sets, from, min(from + 2 * CHUNK - 1, n))) end
  for from = 1, r, CHUNK do call('HDEL', h.k, unpack(removed, from, min(from + CHUNK - 1, r))) end
end

local function flush_lexset(z)
  local added, removed, n, r = {}, {}, 0, 0
  for m in pairs(z.gone) do
    r = r + 1
    removed[r] = m
  end
  for m in pairs(z.new) do
    added[n + 1], added[n + 2] = '0', m
    n = n + 2
  end
  for from = 1, r, CHUNK do call('ZREM', z.k, unpack(removed, from, min(from + CHUNK - 1, r))) end
  for from = 1, n, 2 * CHUNK do call('ZADD', z.k, unpack(added, from, min(from + 2 * CHUNK - 1, n))) end
end

local function flush(grows) -- grows: it may be refused when the server is at its memory limit
  if is_used(order) then order.arm_freed() end
  local counts, added, gone = {}, {}, {}
  if is_used(jobs) then counts, added, gone = jobs.flush() end
  if is_used(transitions) then transitions.flush_events() end
  if is_used(queues) then queues.flush() end
  if is_used(order) then order.flush() end
  if is_used(leases) then leases.flush() end
  write_numbers()
  local chosen = is_used(order) and wakes.chosen(order.armed()) or {}
  if not grows then call('HDEL', META.k, '-') end -- a shrinking write first: from then on a script may grow
  for _, h in ipairs({META, BODY, HEAD, SET, PAST, FIFO, LANE, KEY, SESS, GONE, LOG}) do
    if h.changed then flush_hash(h) end
  end
  for from = 1, #gone, CHUNK do call('ZREM', ARRIVED, unpack(gone, from, min(from + CHUNK - 1, #gone))) end
  for from = 1, #added, 2 * CHUNK do call('ZADD', ARRIVED, unpack(added, from, min(from + 2 * CHUNK - 1, #added))) end
  for field, by in pairs(counts) do
    if by ~= 0 and call('HINCRBY', COUNT.k, field, by) == 0 then call('HDEL', COUNT.k, field) end
  end
  for _, z in ipairs({READY, RING, LEASE, LINK, TIME, NAMES}) do
    if z.new then flush_lexset(z) end
  end
  if #chosen > 0 then wakes.ring(chosen) end
  local ended = is_used(lifecycle) and lifecycle.ended() or {}
  if (#ended > 0 or (is_used(transitions) and transitions.any_events())) and call('PUBSUB', 'NUMSUB', CHANNEL)[2] > 0 then
    for from = 1, max(1, #ended), 1000 do
      call('PUBLISH', CHANNEL, concat(ended, '', from, min(from + 999, #ended)))
    end
  end
end
