-- prune: finished jobs that nothing needs go, whether or not their time is over.
--
-- ARGV[2]  targets: job, expected state or -1
-- Returns  {effect, state, ""} per target
-- Writes   as discard
-- Cost     as discard; of a job with dependents, these are looked at: 1,000 at the most
-- include: operating
return operate(decode(ARGV[2]), function(j)
  if not jobs.is_finished(j.state) then return {$Effect.WRONG_STATE, j.state, ''} end
  if j.state ~= $State.DEAD and flows.is_needed(j) then return {$Effect.CONFLICT, j.state, ''} end
  lifecycle.remove(j, $Move.PRUNE)
  return {$Effect.APPLIED, -1, ''}
end)
