-- finished: those of the jobs that have ended, for `watch`.
--
-- ARGV[2]  ids
-- Returns  per finished job: id, state, reason, result, error
-- Cost     O(ids)
-- include: jobs
local ids, out = decode(ARGV[2]), {}
jobs.load(ids)
for i = 1, #ids do
  local id = ids[i]
  local j = jobs.get(id)
  local t = not j and jobs.tombstone(id)
  if t or (j and jobs.is_finished(j.state)) then
    local row = {id, j and j.state or t[1], j and (j.rare.reason or '') or (t[2] or ''), false, false}
    if j then
      local got = call('HMGET', PAST.k, id .. 'r', id .. 'e')
      row[4], row[5] = got[1], got[2]
    end
    for k = 1, 5 do out[#out + 1] = row[k] end
  end
end
return out
