-- get: jobs by id, with everything that is kept of them.
--
-- ARGV[2]  ids
-- Returns  per job: false, or {head, body, parent is dead, deliveries, error, result, after, memos, lines …}, or of one
--          that is not kept {packed tombstone}
-- Cost     O(ids + parents of blocked ones)
-- include: base, clock, jobs
local ids, out = unpack_(ARGV[2]), {}
load_jobs(ids)
for i = 1, #ids do
  local j = job(ids[i])
  local t = not j and tombstone(ids[i])
  out[i] = t and {pack(t)} or false
  if j then
    local fields, dead = {j.id .. 'd', j.id .. 'e', j.id .. 'r', j.id .. 'a', j.id .. 'm'}, 0
    local lines = j.x.logs or 0
    for n = max(0, lines - 100), lines - 1 do fields[#fields + 1] = j.id .. 'l' .. n % 100 end
    local got = call('HMGET', PAST.k, unpack(fields))
    got[1] = got[1] or (j.ends > 0 and past(j, 'd'))
    if j.state == BLOCKED and got[4] then
      for at = 1, #got[4], 17 do
        local parent = job(sub(got[4], at, at + 15))
        local name = 'E' .. sub(got[4], at, at + 15) .. n7(j.arrival) .. j.id .. sub(got[4], at + 16, at + 16)
        if parent and parent.state == DEAD and zhas(LINK, name) then dead = 1 end
      end
    end
    out[i] = {(whole(j.id)), hget(BODY, j.id), dead, unpack(got)}
  end
end
return out
