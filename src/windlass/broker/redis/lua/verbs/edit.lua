-- edit: new values for waiting or dead jobs.
--
-- ARGV[2]  edits: job, expected state or -1, payload or false, headers (text) or false, tags (text) or false,
--          priority or false, max_attempts or false
-- Returns  {effect, state, ""} per edit
-- Writes   head, body, ready, fifo, lane, ring, count, log
-- Cost     O(edits · log n)
-- include: operating

local function set_body(j, payload, headers)
  -- A body is the length of its end (1 byte) and of its headers (3), headers, payload, end: cut, never decoded. The end
  -- stays, though it fits another length.
  local body = hget(BODY, j.id)
  local tail, n = struct.unpack('>BI3', body)
  local old = #body - 4 - tail - n
  headers = headers or sub(body, 5, 4 + n)
  payload = payload or sub(body, 5 + n, -1 - tail)
  j.size, N.bytes = j.size + #payload - old, N.bytes + #payload - old
  hset(BODY, j.id, struct.pack('>BI3', tail, #headers) .. headers .. payload .. sub(body, -tail))
end

return operate(decode(ARGV[2]), function(j, item)
  local _, _, payload, headers, tags, priority, max_attempts = unpack(item)
  if not (jobs.is_waiting(j.state) or j.state == $State.DEAD) then return {$Effect.WRONG_STATE, j.state, ''} end
  if j.state == $State.READY then order.unfile(j) end
  if payload or headers then set_body(j, payload, headers) end
  if tags then j.tags = tags end
  if priority then j.priority = priority end
  if max_attempts then j.max_attempts = max_attempts end
  jobs.touch(j)
  transitions.make(j, $Move.EDIT, j.state, j.rare.reason)
  if j.state == $State.READY then
    if priority then order.set_band(j.kind.q, j) end
    order.file(j, true)
  end
  return {$Effect.APPLIED, j.state, ''}
end)
