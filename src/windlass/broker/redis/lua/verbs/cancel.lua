-- cancel: waiting jobs at once; running ones get a flag, which the next pulse of their session carries.
--
-- ARGV[2]  targets: job, expected state or -1
-- Returns  {effect, state, ""} per target
-- Writes   as settle
-- Cost     O(targets · log n), 100 dependents told
-- include: operating
return operate(decode(ARGV[2]), function(j)
  if jobs.is_finished(j.state) then return {$Effect.WRONG_STATE, j.state, ''} end
  if j.state == $State.RUNNING then
    leases.flag(j)
    return {$Effect.FLAGGED, j.state, ''}
  end
  lifecycle.cancel_waiting(j, $Move.CANCEL, $Reason.CANCELLED)
  return {$Effect.APPLIED, j.state, ''}
end)
