-- discard: dead letters go; the policies of edges to them act.
--
-- ARGV[2]  targets: job, expected state or -1
-- Returns  {effect, state, ""} per target
-- Writes   head, body, past, gone, time, link, count, log; dependents as settle
-- Cost     O(targets · log n), 100 dependents told
-- include: operating
return operate(decode(ARGV[2]), function(j)
  if j.state ~= $State.DEAD then return {$Effect.WRONG_STATE, j.state, ''} end
  lifecycle.remove(j, $Move.DISCARD)
  return {$Effect.APPLIED, -1, ''}
end)
