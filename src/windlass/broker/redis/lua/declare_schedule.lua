-- declare_schedule: a schedule declared in code.
--
-- ARGV[2]  name, spec, next_at or false, app, revision
-- Returns  {change, version}
-- Writes   set, names, time, meta
-- Cost     O(log n)
-- include: planning
local a = unpack_(ARGV[2])
local s = schedule_named(a[1])
if s.declared then
  if s.app ~= a[4] then return {'other app', s.version} end
  if s.revision > a[5] then return {'newer revision', s.version} end
  if s.declared == a[2] then
    s.revision = a[5]
    save_schedule(s)
    flush()
    return {'unchanged', s.version}
  end
end
s.declared, s.app, s.revision = a[2], a[4], a[5]
if not s.override then
  s.next_at = a[3]
  s.version = new_version()
end
save_schedule(s)
flush() -- settings are small, and workers that start on a full server declare theirs
return {'applied', s.version}
