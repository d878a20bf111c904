-- declare_schedule: a schedule declared in code.
--
-- ARGV[2]  name, spec, next_at or false, app, revision
-- Returns  {change, version}
-- Writes   set, names, time, meta
-- Cost     O(log n)
-- include: write, schedules
local name, spec, next_at, app, revision = unpack(decode(ARGV[2]))
local s, change = schedules.get(name), $Change.APPLIED
if s.declared then
  if s.app ~= app then return {$Change.OTHER_APP, s.version} end
  if s.revision > revision then return {$Change.NEWER_REVISION, s.version} end
  if s.declared == spec then change = $Change.UNCHANGED end
end
if change == $Change.APPLIED then
  s.declared, s.app = spec, app
  if not s.override then
    s.next_at = next_at
    s.version = schedules.new_version()
  end
end
s.revision = revision
schedules.save(s)
flush() -- settings are small, and workers that start on a full server declare theirs
return {change, s.version}
