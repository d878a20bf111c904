-- Settings: documents in two layers, and the policies they amount to.
--
-- SET    D kind NUL name NUL lane: app, revision, version, declared?, override? · d …: declared · o …: override
-- NAMES  D kind NUL name NUL lane
-- Of queues and lanes the layers are msgpack maps of what is said (false: no limit); of other kinds, bytes.
-- module: settings
-- include: order
local DEFAULTS -- the retention of this store where a queue says nothing

function settings.set_defaults(defaults) DEFAULTS = defaults end

function settings.document(kind, name, lane)
  local at = kind .. NUL .. name .. NUL .. lane
  hload(SET, {'D' .. at, 'd' .. at, 'o' .. at})
  local s = hget(SET, 'D' .. at)
  local a = s and decode(s) or {'', 0, 0, false, false}
  return {at = at, kind = kind, name = name, lane = lane, app = a[1], revision = a[2], version = a[3],
    declared = a[4] and hget(SET, 'd' .. at), override = a[5] and hget(SET, 'o' .. at), known = s and true}
end

local function overlay(declared, override)
  local said = declared and decode(declared) or {}
  for k, v in pairs(override and decode(override) or {}) do said[k] = v end
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
  local all, prefix = call('HGETALL', COUNT.k), name .. NUL
  for i = 1, #all, 2 do
    local unfinished = sub(all[i], 1, #prefix) == prefix and tonumber(sub(all[i], -1)) <= $State.RUNNING
    if unfinished and all[i + 1] ~= '0' then return true end
  end
  return false
end

function settings.why_not(doc, declared, override)
  if doc.kind == 'lane' and not queues.get(doc.name) then return $Change.UNKNOWN_QUEUE end
  if doc.kind ~= 'queue' then return nil end
  local q = queues.get(doc.name)
  if q and layout(policy(declared, override)) ~= layout(q.policy) and in_use(doc.name) then return $Change.IN_USE end
end

local function forget_clocks(q) -- nothing is filed, and clocks of another layout mean nothing
  local names = queues.lane_names(q, 1000)
  for i = 1, #names do
    local l = queues.lane(q, names[i])
    for band in pairs(l.seats) do
      local r = order.ring(q, band)
      r[1], r[2], r[3], r[4] = 0, 0, false, false
      order.ring_changed(q, band)
      l.seats[band] = nil
    end
    queues.lane_changed(l)
  end
end

local function apply_queue(doc)
  local p = policy(doc.declared, doc.override)
  local q = queues.get(doc.name)
  if not q then
    q = queues.new(doc.name, p)
    queues.add(q)
    queues.changed(q)
  elseif layout(p) ~= layout(q.policy) then
    forget_clocks(q)
  end
  p.born = q.policy.born or number()
  q.policy, q.limited = p, queues.limits(p) or q.laned
  hset(SET, 'Q' .. doc.name, encode(p))
  order.refresh_lanes(q)
  order.wake_if_claimable(q)
end

local function apply_lane(doc)
  local q = queues.get(doc.name)
  order.become_laned(q)
  local l = queues.lane(q, doc.lane)
  l.document = (doc.declared or doc.override) and overlay(doc.declared, doc.override) or false
  if l.document then l.document.doc = 1 end -- a document that says nothing is one, too
  queues.lane_changed(l)
  order.refresh(q, l)
  order.wake_if_claimable(q)
end

function settings.put(doc, layer, value) -- layer: declared or override
  doc[layer] = value or nil
  hset(SET, sub(layer, 1, 1) .. doc.at, value or false)
end

local function save(doc)
  local gone = not doc.declared and not doc.override
  if gone then
    zrem(NAMES, 'D' .. doc.at)
  elseif not doc.known then
    zadd(NAMES, 'D' .. doc.at)
    doc.known = true
  end
  hset(SET, 'D' .. doc.at, not gone and encode({doc.app, doc.revision, doc.version,
    doc.declared and true or false, doc.override and true or false}) or false)
end

function settings.apply(doc)
  N.version = N.version + 1
  doc.version = N.version
  save(doc)
  if doc.kind == 'queue' then apply_queue(doc) elseif doc.kind == 'lane' then apply_lane(doc) end
  return {$Change.APPLIED, doc.version}
end

function settings.declare(kind, name, lane, body, app, revision)
  local doc = settings.document(kind, name, lane)
  if doc.declared then
    if doc.app ~= app then return {$Change.OTHER_APP, doc.version} end
    if doc.revision > revision then return {$Change.NEWER_REVISION, doc.version} end
    if doc.declared == body then
      doc.revision = revision
      save(doc)
      return {$Change.UNCHANGED, doc.version}
    end
  end
  local refused = settings.why_not(doc, body, doc.override)
  if refused then return {refused, doc.version} end
  settings.put(doc, 'declared', body)
  doc.app, doc.revision = app, revision
  return settings.apply(doc)
end
