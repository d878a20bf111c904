-- beat: signs of life, of many sessions at once.
--
-- ARGV[2]  beats: session, memory, info (text) or false, ttl, queues
-- Returns  per beat {alive, version of the settings, then job and fence of each lease that is to be cancelled}
-- Writes   sess, time; lease and names for a session that opens
-- Cost     O(beats · log n + leases to cancel, at most 1,000 a session); no lease is looked at
-- include: write
local seen = leases.liveness()

local function open(id, info, ttl, serves)
  local s = {id = id, ended = false, opened = NOW, seen = seen, memory = 0, seq = 0, ended_at = 0, silent_for = 0, leases = 0,
    ttl = ttl, queues = serves, number = number()}
  leases.add_session(s)
  hset(SESS, 'I' .. id, info)
  zadd(NAMES, 's' .. id)
  zadd(TIME, 'A' .. bytes7(seen + ttl) .. id)
  for k = 1, #serves do zadd(LEASE, 'S' .. serves[k] .. NUL .. id) end
  return s
end

local function beat(id, memory, info, ttl, serves)
  local s = leases.session(id)
  if not s and info then s = open(id, info, ttl, serves) end
  if not s or s.ended then return {0, N.version} end
  if s.seen < seen then
    zrem(TIME, 'A' .. bytes7(s.seen + s.ttl) .. id)
    zadd(TIME, 'A' .. bytes7(seen + s.ttl) .. id)
    s.seen = seen
  end
  s.memory = memory
  leases.session_changed(s)
  local answer = {1, N.version}
  local flagged = zpage(LEASE, 'F' .. id .. NUL, 1000)
  for k = 1, #flagged do
    local j = jobs.get(sub(flagged[k], -16))
    answer[#answer + 1] = j.id
    answer[#answer + 1] = j.fence
  end
  return answer
end

local beats, answers = decode(ARGV[2]), {}
for i = 1, #beats do answers[i] = beat(unpack(beats[i])) end
flush(false)
return answers
