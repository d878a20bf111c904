-- Calls of producers: whether their ids are known, and what refuses a group.
--
-- A call (from the adapter): 1 id, 2 queue, 3 task, 4 lane, 5 priority, 6 max_attempts, 7 delay, 8 run_at or false,
-- 9 expires or false, 10 key or false, 11 mode, 12 window, 13 tags (text), 14 revision, 15 flow, 16 parent (text),
-- 17 after (parent 16 bytes, policy 1 byte each) or false, 18 body, 19 bytes of payload
-- A receipt: status, or {status, job that stands for it}. A refusal: {place in the group, why, which}.
-- include: queues, jobs
local CREATED, DUPLICATE, REPLACED = 0, 1, 2

local function known(id) -- the receipt of an id that was sent before
  if job(id) then return DUPLICATE, id end
  local status, of = absorbed(id)
  if status then return status, of end
  if tombstone(id) then return DUPLICATE, id end
end

local function look_up(calls) -- everything that a group asks for, at once
  local ids, places, lanes = {}, {}, {}
  for i = 1, #calls do
    local c = calls[i]
    ids[#ids + 1] = c[1]
    if c[4] ~= '' then lanes[#lanes + 1] = 'l' .. c[2] .. NUL .. c[4] end
    if c[10] then places[#places + 1] = c[2] .. NUL .. c[4] .. NUL .. c[3] .. NUL .. c[10] end
    if c[17] then
      for at = 1, #c[17], 17 do ids[#ids + 1] = sub(c[17], at, at + 15) end
    end
  end
  load_jobs(ids)
  hload(GONE, ids)
  if #places > 0 then hload(KEY, places) end
  if #lanes > 0 then hload(LANE, lanes) end
end

-- Those of a group that can never be free: in a cycle, or behind one. Calls under one key count as one job; those that
-- were sent before are what they were then, also if that was earlier in the group (`core/group.py`).
local function in_cycle(calls)
  local by_key, stands, open, first = {}, {}, {}, {}
  for i = 1, #calls do
    local c = calls[i]
    if not stands[c[1]] and not known(c[1]) then
      first[i] = true
      local place = c[10] and c[2] .. NUL .. c[4] .. NUL .. c[3] .. NUL .. c[10]
      if place then by_key[place] = by_key[place] or c[1] end
      stands[c[1]] = place and by_key[place] or c[1]
    end
  end
  local waits, children, free = {}, {}, {}
  for i = 1, #calls do
    local c = calls[i]
    if first[i] and stands[c[1]] == c[1] then -- an absorbed call waits for nobody
      local parents = {}
      for at = 1, c[17] and #c[17] or 0, 17 do
        local parent = stands[sub(c[17], at, at + 15)]
        if parent then parents[parent] = true end
      end
      open[c[1]] = parents
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

local function refusals(calls, may_fill)
  local found, ids, bytes = {}, nil, 0
  for i = 1, #calls do
    bytes = bytes + calls[i][19]
    if calls[i][17] then ids = ids or {} end
  end
  if ids then
    for i = 1, #calls do ids[calls[i][1]] = true end
  end
  local cyclic = ids and in_cycle(calls)
  local full = not may_fill and MAX_SIZE and N.bytes + bytes > MAX_SIZE
  for i = 1, #calls do
    local c = calls[i]
    if not queue(c[2]) or c[17] or (cyclic and cyclic[c[1]]) or full then
      if not known(c[1]) then
        local unknown
        for at = 1, c[17] and #c[17] or 0, 17 do
          local parent = sub(c[17], at, at + 15)
          if not ids[parent] and not known(parent) then unknown = unknown or parent end
        end
        if not queue(c[2]) then
          found[#found + 1] = {i, 'unknown queue', ''}
        elseif unknown then
          found[#found + 1] = {i, 'unknown parent', unknown}
        elseif cyclic and cyclic[c[1]] then
          found[#found + 1] = {i, 'cycle', ''}
        elseif full then
          found[#found + 1] = {i, 'store full', ''}
        end
      end
    end
  end
  return found
end
