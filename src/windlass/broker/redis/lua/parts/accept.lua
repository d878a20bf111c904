-- Accepting jobs: groups that come into being whole or not at all, unique keys, edges.
-- module: accept
-- include: leases, calls

local function due_of(c) return rules.due_at(c.more.run_at, c.more.delay, NOW) end

local function create(c, created, follows)
  local of, more = c.of, c.more
  if not of.kind then of.kind = jobs.kind(of.queue .. NUL .. of.task .. NUL .. of.lane) end
  if of.lane ~= '' then order.become_laned(of.kind.q) end
  local j = {id = c.id, state = -1, priority = of.priority, max_attempts = of.max_attempts, attempt = 0, fence = 0, due = due_of(c), band = 0, seq = 0, arrival = number(),
    accepted = NOW, size = c.size, ends = 0, tags = of.tags, revision = of.revision, flow = of.flow, place = 0,
    session = false, ask = 0, claimed = 0, started = false, kept = false, finished = 0, runtime = 0, rare = {},
    kind = of.kind, cold = false, touched = false, written = false, removed = false,
    is_new = true, in_flow = false, dead = more.dead}
  jobs.add(j)
  hset(BODY, j.id, c.body)
  jobs.forget_grave(j.id)
  N.bytes = N.bytes + j.size
  created[#created + 1] = j
  local rare = j.rare
  if more.expires then rare.expires = NOW + more.expires end
  if more.key then rare.key, rare.mode, rare.window = more.key, more.mode, more.window end
  if more.parent ~= '' then rare.parent = more.parent end
  if more.after then rare.after = more.after end -- its length from `tie` on
  if follows then
    rare.waiting = 1
  elseif more.key then
    keys.take(keys.of(j), j)
  end
  return $Status.CREATED
end

local function absorb(c, status, of)
  jobs.absorb(c.id, status, of)
  return {status, of}
end

local function replace(j, c) -- a waiting job takes over what a newer call asks for
  local rare, of, more = j.rare, c.of, c.more
  if j.state >= 0 then transitions.forget_expiry(j) end
  if j.state ~= $State.BLOCKED then transitions.leave_waiting(j) end
  j.priority, j.max_attempts, j.tags, j.revision = of.priority, of.max_attempts, of.tags, of.revision
  rare.mode, rare.window = more.mode, more.window
  N.bytes = N.bytes + c.size - j.size
  j.size = c.size
  hset(BODY, j.id, c.body)
  j.due = due_of(c)
  rare.expires = more.expires and NOW + more.expires or nil
  j.attempt, j.started = 0, false
  rare.crashes, rare.permille, rare.message = nil, nil, nil
  leases.forget_hold(rare)
  if rare.error then
    jobs.set_past(j, 'e', false)
    rare.error = nil
  end
  if rare.memos then
    jobs.set_past(j, 'm', false)
    rare.memos = nil
  end
  jobs.touch(j)
  local k = keys.held(j)
  if k then
    k.mode, k.window = more.mode, more.window
    keys.save(k)
  end
  if j.state == $State.BLOCKED then
    transitions.make(j, $Move.REPLACE, $State.BLOCKED)
  elseif j.state >= 0 then
    transitions.make_waiting(j, $Move.REPLACE)
    local q = j.kind.q
    if q.policy.sequence and q.laned then order.refresh(q, queues.lane(q, j.kind.lane)) end
  end
  if j.state >= 0 then transitions.watch_expiry(j) end
  return absorb(c, $Status.REPLACED, j.id)
end

local function state_of_holder(k)
  if k.till then return $State.DONE end -- what has the id of a holder that finished may be another job by now
  local holder = jobs.get(k.holder)
  if not holder then return $State.DONE end
  return holder.state < 0 and $State.BLOCKED or holder.state
end

local function accept_call(c, created) -- as its key says
  local status, of = calls.known(c.id)
  if status then return {status, of} end
  local k = c.more.key and keys.get(calls.key_place(c))
  if not k then return create(c, created) end
  local ruling = rules.key(c.more.mode, state_of_holder(k), not (k.till and NOW >= k.till))
  if ruling == $Key.CREATE then return create(c, created) end
  if ruling == $Key.REPLACE then return replace(jobs.get(k.holder), c) end
  if ruling == $Key.FOLLOW then
    if k.follower then return replace(jobs.get(k.follower), c) end
    k.follower = c.id
    keys.save(k)
    return create(c, created, true)
  end
  return absorb(c, $Status.DUPLICATE, k.holder)
end

function accept.note_child(parent) -- somebody waits for it, or reads it: it may be needed
  if not parent.rare.children then
    flows.forget_needs(parent)
    local kept = parent.kept
    lifecycle.unkeep(parent)
    parent.rare.children = 1
    if kept then lifecycle.keep(parent) end
    jobs.touch(parent)
  elseif parent.kept == 'k' then
    lifecycle.keep(parent)
  end
end

local function tie(j) -- to its parents; whether an edge to one that has failed cancels it
  local policies, parents, asked = {}, {}, j.rare.after
  for at = 1, #asked, 17 do
    local parent = sub(asked, at, at + 15)
    local status, stands_for_it = calls.known(parent)
    parent = status and stands_for_it or parent
    if not policies[parent] then parents[#parents + 1] = parent end
    policies[parent] = sub(asked, at + 16, at + 16)
  end
  local after, waiting, failed = {}, j.rare.waiting or 0, false
  j.rare.after = #parents
  for i = 1, #parents do after[i] = parents[i] .. policies[parents[i]] end
  jobs.set_past(j, 'a', concat(after))
  for i = 1, #parents do
    local id = parents[i]
    local policy, parent, state = policies[id], jobs.get(id), nil
    if parent then
      state = parent.state
      accept.note_child(parent)
      flows.need(id, j) -- none to one that is gone, which ties nobody, should its id come again
    else
      local t = jobs.tombstone(id)
      state = (not t or t[1] == $State.DONE) and $State.DONE or $State.CANCELLED
    end
    local ruling = rules.edge(policy, state)
    failed = ruling == $Edge.CANCEL
    if failed then break end
    if ruling == $Edge.WAIT then
      waiting = waiting + 1
      flows.open_edge(id, j, policy)
    end
  end
  j.rare.waiting = waiting > 0 and waiting or nil
  return failed
end

local function place(j)
  if j.rare.after and tie(j) then
    lifecycle.finish(j, $Move.PARENT_FAILED, $State.CANCELLED, $Reason.PARENT_FAILED)
    lifecycle.keep_or_remove(j)
    return
  end
  if j.dead then
    jobs.set_past(j, 'e', j.dead)
    j.rare.error = 1
    lifecycle.finish(j, $Move.ENQUEUE, $State.DEAD, $Reason.UNFIT)
    lifecycle.keep(j)
    return
  end
  transitions.watch_expiry(j)
  if j.rare.waiting then
    transitions.make(j, $Move.ENQUEUE, $State.BLOCKED)
    transitions.block(j)
  else
    order.line_up(j)
    transitions.make_waiting(j, $Move.ENQUEUE)
  end
end

function accept.all(group) -- a group that was found acceptable; its receipts
  local created, receipts = {}, {}
  for i = 1, #group do receipts[i] = accept_call(group[i], created) end
  for i = 1, #created do place(created[i]) end
  return receipts
end
