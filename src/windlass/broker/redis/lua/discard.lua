-- discard: dead letters go; the policies of edges to them act.
--
-- ARGV[2]  targets: job, expected state or -1
-- Returns  {effect, state, ""} per target
-- Writes   head, body, past, gone, time, link, count, log; dependents as settle
-- Cost     O(targets · log n), 100 dependents told
-- include: operating
return operate(unpack_(ARGV[2]), function(j)
  if j.state ~= DEAD then return {'wrong state', j.state, ''} end
  drop(j, 'discard')
  return {'applied', -1, ''}
end)
