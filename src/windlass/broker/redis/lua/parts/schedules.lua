-- Schedules: documents with a next time, fired by compare-and-set.
--
-- SET    S name: app, revision, version, next_at or false, paused, declared?, override? · 1 name: declared
--        2 name: override · 3 name: fires (tick, at, jobs as hex, missed)
-- NAMES  S name     TIME  S next_at name, unless paused
-- module: schedules
-- include: context

function schedules.get(name) -- a new one if there is none
  hload(SET, {'S' .. name, '1' .. name, '2' .. name})
  local kept = hget(SET, 'S' .. name)
  local a = kept and decode(kept) or {'', 0, 0, false, false, false, false}
  return {name = name, known = kept and true or false, app = a[1], revision = a[2], version = a[3], next_at = a[4],
    paused = a[5], declared = a[6] and hget(SET, '1' .. name), override = a[7] and hget(SET, '2' .. name),
    was_at = kept and not a[5] and a[4] or false}
end

function schedules.save(s)
  local at = s.next_at and not s.paused and s.next_at or false
  if at ~= s.was_at then
    if s.was_at then zrem(TIME, 'S' .. bytes7(s.was_at) .. s.name) end
    if at then zadd(TIME, 'S' .. bytes7(at) .. s.name) end
  end
  if not s.known then zadd(NAMES, 'S' .. s.name) end
  hset(SET, 'S' .. s.name, encode({s.app, s.revision, s.version, s.next_at, s.paused, s.declared and true or false,
    s.override and true or false}))
  hset(SET, '1' .. s.name, s.declared or false)
  hset(SET, '2' .. s.name, s.override or false)
end

function schedules.remove(s)
  if s.was_at then zrem(TIME, 'S' .. bytes7(s.was_at) .. s.name) end
  zrem(NAMES, 'S' .. s.name)
  for _, letter in ipairs({'S', '1', '2', '3'}) do hset(SET, letter .. s.name, false) end
end

function schedules.new_version()
  N.version = N.version + 1
  return N.version
end

function schedules.is_due()
  local m = zfirst(TIME, 'S')
  return m and read7(m, 2) <= NOW
end
