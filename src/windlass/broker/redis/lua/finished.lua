-- finished: those of the jobs that have ended, for `watch`.
--
-- ARGV[2]  ids
-- Returns  per finished job: id, state, reason, result, error
-- Cost     O(ids)
-- include: base, clock, jobs
local ids, out = unpack_(ARGV[2]), {}
load_jobs(ids)
for i = 1, #ids do
  local id = ids[i]
  local j = job(id)
  local t = not j and tombstone(id)
  if t or (j and j.state >= DONE) then
    local row = {id, j and j.state or t[1], j and (j.x.reason or '') or (t[2] or ''), false, false}
    if j then
      local got = call('HMGET', PAST.k, id .. 'r', id .. 'e')
      row[4], row[5] = got[1], got[2]
    end
    for k = 1, 5 do out[#out + 1] = row[k] end
  end
end
return out
