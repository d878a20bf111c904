-- Ending sessions: what becomes of their leases.
-- SESS C session: cause (text), NUL, kind, NUL, started (job 16 bytes, fence 7 bytes each)
-- include: flush

local function mark_ended(s, kind, text, started) -- from here on none of its words counts; the first cause stands
  if s[1] then return end
  zrem(TIME, 'A' .. n7(s[3] + s[9]) .. s.id)
  s[1], s[6], s[7] = true, NOW, max(0, N.live - s[3])
  session_changed(s)
  hset(SESS, 'C' .. s.id, text .. NUL .. kind .. NUL .. started)
  zadd(TIME, 'O' .. n7(NOW) .. s.id)
  for k = 1, #s[10] do zrem(LEASE, 'S' .. s[10][k] .. NUL .. s.id) end
  if s[8] > 0 then zadd(LEASE, 'D' .. s.id) end
end

local function return_leases(s, limit) -- charged by what is known; how many
  local text, kind, started = string.match(hget(SESS, 'C' .. s.id), '^(%Z*)%z(%Z*)%z(.*)$')
  local had = {}
  for at = 1, #started, 23 do had[sub(started, at, at + 22)] = true end
  local cause, done, p = {kind, text}, 0, 'L' .. s.id .. NUL
  while done < limit and s[8] > 0 do
    local m = zfirst(LEASE, p)
    local seq = r7(m, #p + 1)
    local r = reply(s.id, seq)
    local ids = {}
    for at = 1, #r.jobs, 16 do ids[#ids + 1] = sub(r.jobs, at, at + 15) end
    load_jobs(ids)
    for i = 1, #ids do
      local j = job(ids[i])
      if done < limit and j and j.state == RUNNING and j.session == s.id and j.lseq == seq then
        local had_started = had[j.id .. n7(j.fence)] or false
        local ruling = rule_session_end(j, kind, had_started)
        end_lease(j, ruling, kind ~= 'lost' and not had_started, cause)
        drop_if_unkept(j)
        done = done + 1
      end
    end
  end
  if s[8] == 0 then zrem(LEASE, 'D' .. s.id) end
  return done
end
