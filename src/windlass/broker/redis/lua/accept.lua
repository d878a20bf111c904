-- Accepting jobs: groups that come into being whole or not at all, unique keys, edges.
-- include: leases, calls

local function due_of(c) return c[8] and max(NOW, c[8]) or NOW + c[7] end

local function absorb(id, status, of)
  bury(id, 'a' .. of .. pack({status, NOW + WINDOW}), NOW + WINDOW)
  return {status, of}
end

local function create(c, follows, created)
  local q = queue(c[2])
  if c[4] ~= '' then become_laned(q) end
  local j = {id = c[1], state = -1, queue = c[2], task = c[3], lane = c[4], priority = c[5], max = c[6], attempt = 0,
    fence = 0, due = due_of(c), band = 0, seq = 0, arrival = number(), accepted = NOW, size = c[19], ends = 0,
    tags = c[13], revision = c[14], place = 0, session = false, lseq = 0, claimed = 0, x = {}}
  local x = j.x
  if c[9] then x.expires = NOW + c[9] end
  if c[10] then x.key, x.mode, x.window = c[10], c[11], c[12] end
  if c[15] ~= '' then x.flow = c[15] end
  if c[16] ~= '' then x.parent = c[16] end
  if c[17] then x.after = c[17] end -- its length from `place_new` on
  JOBS[j.id] = j
  j.is_new = true
  touch(j)
  hset(BODY, j.id, c[18])
  if GONE.v[j.id] then hset(GONE, j.id, false) end
  N.bytes = N.bytes + j.size
  if follows then
    x.waiting = 1
  elseif x.key then
    new_key(key_place(j), j)
  end
  created[#created + 1] = j
  return CREATED
end

local function replace(j, c) -- a waiting job takes over what a newer call asks for
  local x = j.x
  if j.state >= 0 then forget_expiry(j) end
  if j.state ~= BLOCKED then leave_waiting(j) end
  j.priority, j.max, j.tags, j.revision = c[5], c[6], c[13], c[14]
  x.mode, x.window = c[11], c[12]
  N.bytes = N.bytes + c[19] - j.size
  j.size = c[19]
  hset(BODY, j.id, c[18])
  j.due = due_of(c)
  x.expires = c[9] and NOW + c[9] or nil
  j.attempt = 0
  x.crashes, x.started, x.permille, x.message = nil, nil, nil, nil
  forget_hold(x)
  if x.error then
    set_past(j, 'e', false)
    x.error = nil
  end
  if x.memos then
    set_past(j, 'm', false)
    x.memos = nil
  end
  touch(j)
  local k = held_key(j)
  if k then
    k.mode, k.window = c[11], c[12]
    save_key(k)
  end
  if j.state == BLOCKED then
    transition(j, 'replace', BLOCKED)
  elseif j.state >= 0 then
    make_waiting(j, 'replace')
    local q = queue(j.queue)
    if q.p.sequence and q.laned then refresh(q, lane_of(q, j.lane)) end
  end
  if j.state >= 0 then watch_expiry(j) end
  return absorb(c[1], REPLACED, j.id)
end

local function meet(c, created)
  local status, of = known(c[1])
  if status then return {status, of} end
  if not c[10] then return create(c, nil, created) end
  local place = c[2] .. NUL .. c[4] .. NUL .. c[3] .. NUL .. c[10]
  local k = key_record(place)
  if not k then return create(c, nil, created) end
  -- What has the id of a holder that finished may be another job by now.
  local holder = not k.till and job(k.holder)
  local state = DONE
  if holder then state = holder.state < 0 and BLOCKED or holder.state end
  if is_waiting(state) then
    if c[11] == REPLACE then return replace(holder, c) end
  elseif state == RUNNING then
    if c[11] == REPLACE then
      if k.follower then return replace(job(k.follower), c) end
      k.follower = c[1]
      save_key(k)
      return create(c, k.holder, created)
    end
  elseif c[11] == REPLACE or (k.till and NOW >= k.till) then
    return create(c, nil, created)
  end
  return absorb(c[1], DUPLICATE, k.holder)
end

local function stands_for(id)
  local status, of = known(id)
  return status and of or id
end

local function note_child(parent) -- somebody waits for it, or reads it: it may be needed
  if not parent.x.children then
    -- Of those who depended on another job under its id; more than these count as its own.
    for _, m in ipairs(zpage(LINK, 'N' .. parent.id, 1000)) do zrem(LINK, m) end
    local kept = parent.x.kept
    unkeep(parent)
    parent.x.children = 1
    if kept then keep(parent) end
    touch(parent)
  elseif parent.x.kept == 'k' then
    unkeep(parent)
    keep(parent)
  end
end

local function tie(j) -- to its parents; whether an edge to one that has failed cancels it
  local seen, order = {}, {}
  local asked = j.x.after
  for at = 1, #asked, 17 do
    local parent = stands_for(sub(asked, at, at + 15))
    if not seen[parent] then order[#order + 1] = parent end
    seen[parent] = sub(asked, at + 16, at + 16)
  end
  local after, waiting, failed = {}, j.x.waiting or 0, false
  j.x.after = #order
  for i = 1, #order do after[i] = order[i] .. seen[order[i]] end
  set_past(j, 'a', concat(after))
  for i = 1, #order do
    local id = order[i]
    local policy, parent = seen[id], job(id)
    local state
    if parent then
      state = parent.state
      note_child(parent)
      zadd(LINK, need_name(id, j)) -- none to one that is gone, which ties nobody, should its id come again
    else
      local t = tombstone(id)
      state = (not t or t[1] == DONE) and DONE or CANCELLED
    end
    if state == CANCELLED and policy == 'c' then
      failed = true
      break
    end
    local resolved = state == DONE or state == CANCELLED or (state == DEAD and policy == 'r')
    if not resolved then
      waiting = waiting + 1
      zadd(LINK, edge_name(id, j, policy))
      if policy == 'r' then zadd(LINK, run_name(id, j)) end
    end
  end
  j.x.waiting = waiting > 0 and waiting or nil
  return failed
end

local function place_new(j)
  if j.x.after and tie(j) then
    finish(j, 'parent failed', CANCELLED, 'parent failed')
    drop_if_unkept(j)
    return
  end
  watch_expiry(j)
  if j.x.waiting then
    transition(j, 'enqueue', BLOCKED)
    zadd(READY, blocked_name(j))
  else
    line_up(j)
    make_waiting(j, 'enqueue')
  end
end

local function accept(calls) -- a group that has been found acceptable
  local created, receipts = {}, {}
  for i = 1, #calls do receipts[i] = meet(calls[i], created) end
  for i = 1, #created do place_new(created[i]) end
  return receipts
end
