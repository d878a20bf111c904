-- override_schedule: set or reset the operators' specification, if the version is the expected one.
--
-- ARGV[2]  name, spec or false, next_at or false, expected version
-- Returns  {change, version}
-- Writes   set, names, time, meta
-- Cost     O(log n)
-- include: write, schedules
local name, spec, next_at, expect = unpack(decode(ARGV[2]))
local s = schedules.get(name)
if s.version ~= expect then return {$Change.CONFLICT, s.version} end
if (s.override or false) == spec then return {$Change.UNCHANGED, s.version} end
s.override, s.next_at = spec, next_at
s.version = schedules.new_version()
if not s.declared and not s.override then schedules.remove(s) else schedules.save(s) end
flush() -- settings are small, and workers that start on a full server declare theirs
return {$Change.APPLIED, s.version}
