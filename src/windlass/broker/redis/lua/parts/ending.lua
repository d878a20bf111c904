-- The end of sessions: what becomes of their leases.
-- module: ending
-- include: leases

function ending.mark(s, kind, text, started) -- from here on its messages are refused; the first cause counts
  if s.ended then return end
  zrem(TIME, 'A' .. bytes7(s.seen + s.ttl) .. s.id)
  s.ended, s.ended_at, s.silent_for = true, NOW, max(0, N.live - s.seen)
  leases.session_changed(s)
  hset(SESS, 'C' .. s.id, text .. NUL .. kind .. NUL .. started)
  zadd(TIME, 'O' .. bytes7(NOW) .. s.id)
  for k = 1, #s.queues do zrem(LEASE, 'S' .. s.queues[k] .. NUL .. s.id) end
  if s.leases > 0 then zadd(LEASE, 'D' .. s.id) end
end

function ending.return_leases(s, limit) -- charged by what is known; how many
  local text, kind, started = string.match(hget(SESS, 'C' .. s.id), '^(%Z*)%z(%Z*)%z(.*)$')
  local had = {}
  for at = 1, #started, 23 do had[sub(started, at, at + 22)] = true end
  local cause, done, prefix = {kind = kind, text = text}, 0, 'L' .. s.id .. NUL
  while done < limit and s.leases > 0 do
    local held = leases.given(s, read7(zfirst(LEASE, prefix), #prefix + 1))
    for i = 1, min(#held, limit - done) do
      local j = held[i]
      local had_started = had[j.id .. bytes7(j.fence)] or false
      local ruling = rules.session_end(leases.facts(j), kind, had_started)
      leases.finish(j, ruling, kind ~= $Cause.LOST and not had_started, cause)
      lifecycle.keep_or_remove(j)
      done = done + 1
    end
  end
  if s.leases == 0 then zrem(LEASE, 'D' .. s.id) end
  return done
end
