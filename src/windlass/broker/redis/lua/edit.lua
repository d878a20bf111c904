-- edit: new values for waiting or dead jobs.
--
-- ARGV[2]  edits: job, expected state or -1, payload or false, headers (text) or false, tags (text) or false,
--          priority or false, max_attempts or false
-- Returns  {effect, state, ""} per edit
-- Writes   head, body, ready, fifo, lane, ring, count, log
-- Cost     O(edits · log n)
-- include: operating
return operate(unpack_(ARGV[2]), function(j, e)
  if not (is_waiting(j.state) or j.state == DEAD) then return {'wrong state', j.state, ''} end
  if j.state == RDY then unfile(j) end
  if e[3] or e[4] then
    -- A body is the length of its end (1 byte) and of its headers (3), headers, payload, end: cut, never decoded. The
    -- end stays, though it fits another length.
    local body = hget(BODY, j.id)
    local tail, n = struct.unpack('>BI3', body)
    local headers = e[4] or sub(body, 5, 4 + n)
    local payload = e[3] or sub(body, 5 + n, -1 - tail)
    local grown = #payload - (#body - 4 - tail - n)
    j.size, N.bytes = j.size + grown, N.bytes + grown
    hset(BODY, j.id, struct.pack('>BI3', tail, #headers) .. headers .. payload .. sub(body, -tail))
  end
  if e[5] then j.tags = e[5] end
  if e[6] then j.priority = e[6] end
  if e[7] then j.max = e[7] end
  touch(j)
  transition(j, 'edit', j.state, j.x.reason)
  if j.state == RDY then
    if e[6] then set_band(queue(j.queue), j) end
    file(j, true)
  end
  return {'applied', j.state, ''}
end)
