-- delete_schedule, pause_schedule.
--
-- ARGV[2]  name, what ("delete" or whether it is paused)
-- Returns  whether there is such a schedule
-- Writes   set, names, time
-- Cost     O(log n)
-- include: write, schedules
local name, what = unpack(decode(ARGV[2]))
local s = schedules.get(name)
if not s.known then return 0 end
if what == 'delete' then
  schedules.remove(s)
else
  s.paused = what
  schedules.save(s)
end
flush(false)
return 1
