-- beat: signs of life, of many sessions at once.
--
-- ARGV[2]  beats: session, memory, info (text) or false, ttl, queues
-- Returns  per beat {alive, version of the settings, then job and fence of each lease that is to be cancelled}
-- Writes   sess, time; lease and names for a session that opens
-- Cost     O(beats · log n + leases to cancel, at most 1,000 a session); no lease is looked at
-- include: flush
local beats, answers, seen = unpack_(ARGV[2]), {}, liveness()
for i = 1, #beats do
  local b = beats[i]
  local id = b[1]
  local s = session(id)
  if not s and b[3] then
    s = {false, NOW, seen, 0, 0, 0, 0, 0, b[4], b[5], number()}
    s.id = id
    SESSIONS[id] = s
    hset(SESS, 'I' .. id, b[3])
    zadd(NAMES, 's' .. id)
    zadd(TIME, 'A' .. n7(seen + b[4]) .. id)
    for k = 1, #b[5] do zadd(LEASE, 'S' .. b[5][k] .. NUL .. id) end
  end
  if not s or s[1] then
    answers[i] = {0, N.version}
  else
    if s[3] < seen then
      zrem(TIME, 'A' .. n7(s[3] + s[9]) .. id)
      zadd(TIME, 'A' .. n7(seen + s[9]) .. id)
      s[3] = seen
    end
    s[4] = b[2]
    session_changed(s)
    local answer = {1, N.version}
    local flagged = zpage(LEASE, 'F' .. id .. NUL, 1000)
    for k = 1, #flagged do
      local j = job(sub(flagged[k], -16))
      answer[#answer + 1] = j.id
      answer[#answer + 1] = j.fence
    end
    answers[i] = answer
  end
end
flush(false)
return answers
