-- replay: dead letters go back, ready, with all attempts.
--
-- ARGV[2]  targets: job, expected state or -1
-- Returns  {effect, state, holder of its key in a conflict} per target
-- Writes   head, time, key, ready or fifo, link, lane, ring, count, log
-- Cost     O(targets · (log n + parents))
-- include: operating
return operate(unpack_(ARGV[2]), function(j)
  if j.state ~= DEAD then return {'wrong state', j.state, ''} end
  local x = j.x
  if x.key then
    local place = key_place(j)
    local k = key_record(place)
    if k and k.holder ~= j.id and (not k.till or NOW < k.till) then return {'conflict', j.state, k.holder} end
    new_key(place, j)
  end
  unkeep(j)
  j.attempt = 0
  x.crashes, x.expires, x.finished, x.permille, x.message = nil, nil, nil, nil, nil
  x.replays = (x.replays or 0) + 1
  forget_hold(x)
  j.due = NOW
  for _, edge in ipairs(parents_of(j)) do
    local parent = job(edge[1])
    if parent then
      note_child(parent)
      zadd(LINK, need_name(edge[1], j))
    end
  end
  line_up(j)
  make_waiting(j, 'replay')
  return {'applied', j.state, ''}
end)
