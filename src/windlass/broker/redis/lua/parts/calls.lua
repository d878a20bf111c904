-- Calls of producers: how they are sent, whether their ids are known, and what refuses a group.
--
-- The adapter sends what many calls share once. A packet: 1 sizes of the groups; 2 kinds of calls: queue, task, lane,
-- priority, max_attempts, tags (text), revision, flow; 3 calls: number of its kind, bytes of its payload, bytes of its
-- body, then unless it is plain: delay, run_at or false, expires or false, key or false, mode, window, parents (16 bytes
-- and a policy each) or false, the job that spawned it or "", why it is born dead if it is; 4 ids (16 bytes each); 5 bodies. Ids and bodies are one string
-- each, in the order of the calls.
--
-- A receipt: status, or {status, the job that stands for it}. A refusal: {place in the group, why, which}.
-- module: calls
-- include: keys
local PLAIN = {delay = 0, run_at = false, expires = false, key = false, mode = 0, window = 0, after = false, parent = ''}

local function read_kind(k)
  return {queue = k[1], task = k[2], lane = k[3], priority = k[4], max_attempts = k[5], tags = k[6], revision = k[7],
    flow = k[8], kind = false}
end

function calls.read(packet) -- groups of calls, and all calls
  local sizes, kinds, rows, ids, bodies = unpack(packet)
  for i = 1, #kinds do kinds[i] = read_kind(kinds[i]) end
  local groups, all, n, at = {}, {}, 0, 1
  for g = 1, #sizes do
    local group = {}
    for i = 1, sizes[g] do
      n = n + 1
      local row, more = rows[n], PLAIN
      if row[4] then
        more = {delay = row[4], run_at = row[5], expires = row[6], key = row[7], mode = row[8], window = row[9], after = row[10],
          parent = row[11], dead = row[12]}
      end
      local c = {id = sub(ids, 16 * n - 15, 16 * n), of = kinds[row[1]], size = row[2], body = sub(bodies, at, at + row[3] - 1),
        more = more}
      at = at + row[3]
      group[i], all[n] = c, c
    end
    groups[g] = group
  end
  return groups, all
end

function calls.key_place(c) return keys.place(c.of.queue, c.of.lane, c.of.task, c.more.key) end

function calls.look_up(all) -- read everything that calls ask for, at once
  local ids, places, lanes = {}, {}, {}
  for i = 1, #all do
    local c = all[i]
    ids[#ids + 1] = c.id
    if c.of.lane ~= '' then lanes[#lanes + 1] = 'l' .. c.of.queue .. NUL .. c.of.lane end
    if c.more.key then places[#places + 1] = calls.key_place(c) end
    if c.more.after then
      for at = 1, #c.more.after, 17 do ids[#ids + 1] = sub(c.more.after, at, at + 15) end
    end
  end
  jobs.load(ids)
  hload(GONE, ids)
  if #places > 0 then hload(KEY, places) end
  if #lanes > 0 then hload(LANE, lanes) end
end

function calls.known(id) -- the receipt of an id that was sent before
  if jobs.get(id) then return $Status.DUPLICATE, id end
  if not hget(GONE, id) then return nil end
  local status, of = jobs.absorbed(id)
  if status then return status, of end
  if jobs.tombstone(id) then return $Status.DUPLICATE, id end
end

-- Those of a group that can never be free: in a cycle, or behind one. Calls under one key count as one job; those that
-- were sent before are what they were then, also if that was earlier in the group (core/group.py).
local function in_cycle(group)
  local by_key, stands, open, first = {}, {}, {}, {}
  for i = 1, #group do
    local c = group[i]
    if not stands[c.id] and not calls.known(c.id) then
      first[i] = true
      local place = c.more.key and calls.key_place(c)
      if place then by_key[place] = by_key[place] or c.id end
      stands[c.id] = place and by_key[place] or c.id
    end
  end
  local waits, children, free = {}, {}, {}
  for i = 1, #group do
    local c = group[i]
    if first[i] and stands[c.id] == c.id then -- an absorbed call waits for nobody
      local parents = {}
      for at = 1, c.more.after and #c.more.after or 0, 17 do
        local parent = stands[sub(c.more.after, at, at + 15)]
        if parent then parents[parent] = true end
      end
      open[c.id] = parents
    end
  end
  for id, parents in pairs(open) do
    waits[id] = 0
    for parent in pairs(parents) do
      waits[id] = waits[id] + 1
      children[parent] = children[parent] or {}
      table.insert(children[parent], id)
    end
    if waits[id] == 0 then free[#free + 1] = id end
  end
  while #free > 0 do
    local id = table.remove(free)
    open[id] = nil
    for _, child in ipairs(children[id] or {}) do
      waits[child] = waits[child] - 1
      if waits[child] == 0 then free[#free + 1] = child end
    end
  end
  local found = {}
  for id, stand in pairs(stands) do found[id] = open[stand] ~= nil end
  return found
end

local function unknown_parent(c, ids)
  for at = 1, c.more.after and #c.more.after or 0, 17 do
    local parent = sub(c.more.after, at, at + 15)
    if not ids[parent] and not calls.known(parent) then return parent end
  end
end

function calls.refusals(group, may_fill)
  local found, ids, bytes = {}, nil, 0
  for i = 1, #group do
    bytes = bytes + group[i].size
    if group[i].more.after then ids = {} end
  end
  local cyclic = {}
  if ids then
    for i = 1, #group do ids[group[i].id] = true end
    cyclic = in_cycle(group)
  end
  local full = not may_fill and MAX_SIZE and N.bytes + bytes > MAX_SIZE
  for i = 1, #group do
    local c = group[i]
    local declared = queues.get(c.of.queue)
    if (not declared or ids or full) and not calls.known(c.id) then
      local unknown = declared and unknown_parent(c, ids)
      if not declared then
        found[#found + 1] = {i, $Refusal.UNKNOWN_QUEUE, ''}
      elseif unknown then
        found[#found + 1] = {i, $Refusal.UNKNOWN_PARENT, unknown}
      elseif cyclic[c.id] then
        found[#found + 1] = {i, $Refusal.CYCLE, ''}
      elseif full then
        found[#found + 1] = {i, $Refusal.STORE_FULL, ''}
      end
    end
  end
  return found
end
