-- replay: dead letters go back, ready, with all attempts.
--
-- ARGV[2]  targets: job, expected state or -1
-- Returns  {effect, state, holder of its key in a conflict} per target
-- Writes   head, time, key, ready or fifo, link, lane, ring, count, log
-- Cost     O(targets · (log n + parents))
-- include: operating
return operate(decode(ARGV[2]), function(j)
  if j.state ~= $State.DEAD then return {$Effect.WRONG_STATE, j.state, ''} end
  local rare = j.rare
  if rare.key then
    local k = keys.get(keys.of(j))
    if k and k.holder ~= j.id and (not k.till or NOW < k.till) then return {$Effect.CONFLICT, j.state, k.holder} end
    keys.take(keys.of(j), j)
  end
  lifecycle.unkeep(j)
  j.attempt, j.finished, j.due = 0, 0, NOW
  rare.crashes, rare.expires, rare.permille, rare.message = nil, nil, nil, nil
  rare.replays = (rare.replays or 0) + 1
  leases.forget_hold(rare)
  for _, edge in ipairs(flows.parents(j)) do
    local parent = jobs.get(edge[1])
    if parent then
      accept.note_child(parent)
      flows.need(edge[1], j)
    end
  end
  order.line_up(j)
  transitions.make_waiting(j, $Move.REPLAY)
  return {$Effect.APPLIED, j.state, ''}
end)
