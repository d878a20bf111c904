-- Settings: documents in two layers, and the policies they amount to.
--
-- SET    D kind NUL name NUL lane: app, revision, version, declared?, override? · d …: declared · o …: override
-- NAMES  D kind NUL name NUL lane
-- Of queues and lanes the layers are msgpack maps of what is said (false: no limit); of other kinds, bytes.
-- include: flush
local DEFAULTS -- retention of this store where a queue says nothing

local function paper(kind, name, lane)
  local at = kind .. NUL .. name .. NUL .. lane
  hload(SET, {'D' .. at, 'd' .. at, 'o' .. at})
  local s = hget(SET, 'D' .. at)
  local a = s and unpack_(s) or {'', 0, 0, false, false}
  return {at = at, kind = kind, name = name, lane = lane, app = a[1], revision = a[2], version = a[3],
    declared = a[4] and hget(SET, 'd' .. at), override = a[5] and hget(SET, 'o' .. at), known = s and true}
end

local function overlay(declared, override)
  local said = declared and unpack_(declared) or {}
  for k, v in pairs(override and unpack_(override) or {}) do said[k] = v end
  return said
end

local function policy(declared, override)
  local said = overlay(declared, override)
  local p = {concurrency = said.concurrency or false, rate = said.rate or false,
    lane_concurrency = said.lane_concurrency or false, lane_rate = said.lane_rate or false,
    bands = said.bands or false, age_step = said.age_step or false, sequence = said.sequence == 1,
    emit = said.emit or 0}
  for k, v in pairs(DEFAULTS) do
    if said[k] ~= nil then p[k] = said[k] else p[k] = v end
  end
  p.one_ring = said.order == 'lane' or p.age_step ~= false or p.sequence
  return p
end

local function layout(p) return tostring(p.one_ring) .. tostring(p.age_step) .. tostring(p.sequence) end

local function in_use(name)
  local all, p = call('HGETALL', COUNT.k), name .. NUL
  for i = 1, #all, 2 do
    if sub(all[i], 1, #p) == p and tonumber(sub(all[i], -1)) <= RUNNING and all[i + 1] ~= '0' then return true end
  end
  return false
end

local function why_not(doc, declared, override)
  if doc.kind == 'lane' and not queue(doc.name) then return 'unknown queue' end
  if doc.kind ~= 'queue' then return nil end
  local q = queue(doc.name)
  if q and layout(policy(declared, override)) ~= layout(q.p) and in_use(doc.name) then return 'in use' end
end

local function forget_clocks(q) -- nothing is filed, and clocks of another layout mean nothing
  local p = 'L' .. q.pre
  local members = zpage(NAMES, p, 1000)
  for i = 1, #members do
    local l = lane_of(q, sub(members[i], #p + 1))
    for band in pairs(l.t) do
      local r = ring_of(q, band)
      r[1], r[2], r[3], r[4] = 0, 0, false, false
      ring_changed(q, band)
      l.t[band] = nil
    end
    lane_changed(l)
  end
end

local function apply_queue(doc)
  local p = policy(doc.declared, doc.override)
  local q = queue(doc.name)
  if not q then
    q = {name = doc.name, p = p, pre = doc.name .. NUL, paused = false, laned = false, running = 0, kept = 0, bucket = false}
    QUEUES[doc.name] = q
    queue_changed(q)
  elseif layout(p) ~= layout(q.p) then
    forget_clocks(q)
  end
  p.born = q.p.born or number()
  q.p = p
  hset(SET, 'Q' .. doc.name, pack(p))
  if q.laned then refresh_lanes(q) end
  wake_if_claimable(q)
end

local function apply_lane(doc)
  local q = queue(doc.name)
  become_laned(q)
  local l = lane_of(q, doc.lane)
  l.d = (doc.declared or doc.override) and overlay(doc.declared, doc.override) or false
  if l.d then l.d.doc = 1 end -- a document that says nothing is one, too
  lane_changed(l)
  refresh(q, l)
  wake_if_claimable(q)
end

local function put(doc, field, letter, value)
  doc[field] = value or nil
  hset(SET, letter .. doc.at, value or false)
end

local function save(doc)
  local gone = not doc.declared and not doc.override
  if gone then
    zrem(NAMES, 'D' .. doc.at)
  elseif not doc.known then
    zadd(NAMES, 'D' .. doc.at)
    doc.known = true
  end
  hset(SET, 'D' .. doc.at, not gone and pack({doc.app, doc.revision, doc.version,
    doc.declared and true or false, doc.override and true or false}) or false)
end

local function apply(doc)
  N.version = N.version + 1
  doc.version = N.version
  save(doc)
  if doc.kind == 'queue' then apply_queue(doc) elseif doc.kind == 'lane' then apply_lane(doc) end
  return {'applied', doc.version}
end

local function declare(d) -- kind, name, lane, body, app, revision
  local doc = paper(d[1], d[2], d[3])
  if doc.declared then
    if doc.app ~= d[5] then return {'other app', doc.version} end
    if doc.revision > d[6] then return {'newer revision', doc.version} end
    if doc.declared == d[4] then
      doc.revision = d[6]
      save(doc)
      return {'unchanged', doc.version}
    end
  end
  local refused = why_not(doc, d[4], doc.override)
  if refused then return {refused, doc.version} end
  put(doc, 'declared', 'd', d[4])
  doc.app, doc.revision = d[5], d[6]
  return apply(doc)
end
