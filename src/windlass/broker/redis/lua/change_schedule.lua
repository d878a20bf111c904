-- delete_schedule, pause_schedule: whether there was one.
--
-- ARGV[2]  name, what ("delete" or whether it is paused)
-- Returns  whether there is such a schedule
-- Writes   set, names, time
-- Cost     O(log n)
-- include: planning
local a = unpack_(ARGV[2])
local s = schedule_named(a[1])
if not s.known then return 0 end
if a[2] == 'delete' then
  remove_schedule(s)
else
  s.paused = a[2]
  save_schedule(s)
end
flush(false)
return 1
