-- cancel: waiting jobs at once; running ones get a flag, which the next pulse of their session carries.
--
-- ARGV[2]  targets: job, expected state or -1
-- Returns  {effect, state, ""} per target
-- Writes   as settle
-- Cost     O(targets · log n), 100 dependents told
-- include: operating
return operate(unpack_(ARGV[2]), function(j)
  if is_terminal(j.state) then return {'wrong state', j.state, ''} end
  if j.state == RUNNING then
    if not j.x.cancel then
      j.x.cancel = 1
      touch(j)
      if j.session then zadd(LEASE, flag_name(j)) end
    end
    return {'flagged', j.state, ''}
  end
  cancel_waiting(j, 'cancel', 'cancelled on request')
  return {'applied', j.state, ''}
end)
