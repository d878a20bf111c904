-- override_schedule: set or reset the operators' specification, if the version is the expected one.
--
-- ARGV[2]  name, spec or false, next_at or false, expected version
-- Returns  {change, version}
-- Writes   set, names, time, meta
-- Cost     O(log n)
-- include: planning
local a = unpack_(ARGV[2])
local s = schedule_named(a[1])
if s.version ~= a[4] then return {'conflict', s.version} end
if (s.override or false) == a[2] then return {'unchanged', s.version} end
s.override, s.next_at = a[2], a[3]
s.version = new_version()
if not s.declared and not s.override then remove_schedule(s) else save_schedule(s) end
flush() -- settings are small, and workers that start on a full server declare theirs
return {'applied', s.version}
