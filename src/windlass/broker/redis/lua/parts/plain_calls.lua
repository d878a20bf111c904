-- Many alike: enqueue and take accept plain calls here, before the parts below are made. Nearly all calls are plain: new ids, one
-- queue and priority, no lane, no flow, and nothing that they wait for. Whatever is not plain is left to the general code path,
-- before anything was written. One call takes a third of the time, and so does a thousand. What is written here is what
-- accept.lua, fifos.lua and jobs.lua write.
-- include: call, clock
local function accept_plain() -- the answer for each group, and the time; nil: it is for the general code path
  local decode, NUL, HEAD, GONE, FIFO, SET = cmsgpack.unpack, '\0', KEYS[3], KEYS[10], KEYS[6], KEYS[2]
  local context, packet = decode(ARGV[1]), decode(ARGV[2])
  local groups, kinds, rows, n = packet[1], packet[2], packet[3], #packet[3]
  if n == 0 then return nil end

  -- the queue, and what is asked of it
  local queue, priority, alike = kinds[1][1], kinds[1][4], true
  for i = 1, #kinds do
    local kind = kinds[i] -- queue, task, lane, priority, max_attempts, tags, revision, flow
    alike = alike and kind[1] == queue and kind[3] == '' and kind[4] == priority and kind[8] == ''
  end
  local numbers = call('HGET', KEYS[1], 'n')
  local kept = call('HMGET', SET, 'Q' .. queue, 'R' .. queue, 'A' .. queue)
  if not alike or not numbers or not kept[1] or kept[3] == 'W' then return nil end -- W: somebody is to be woken
  local policy = decode(kept[1])
  local laned = kept[2] and string.byte(kept[2], 2) == 1
  if laned or policy.sequence or policy.age_step or policy.bands or policy.emit == $Emit.ALL then return nil end

  -- ids that nobody has sent before
  local ids, seen, bytes = {}, {}, 0
  for i = 1, n do
    local id = string.sub(ARGV[3], 16 * i - 15, 16 * i)
    alike = alike and not rows[i][4] and not seen[id]
    ids[i], seen[id], bytes = id, true, bytes + rows[i][2]
  end
  if not alike then return nil end
  local jobs, graves = call('HMGET', HEAD, unpack(ids)), call('HMGET', GONE, unpack(ids))
  for i = 1, n do alike = alike and not jobs[i] and not graves[i] end
  local N = {struct.unpack($NUMBERS_FORM, numbers)} -- 1 mark, 5 seq, 7 bytes (see context.lua)
  if not alike or (context[5] and N[7] + bytes > context[5]) then return nil end

  -- the end of the fifo of its band (see fifos.lua)
  local band, first, used, last, filled, ready = 17592186044416 - priority, 1, 0, 1, 0, 0
  local fifo = call('HGET', FIFO, 'c' .. queue)
  if fifo then
    local only
    only, first, used, last, filled, ready = struct.unpack($FIFO_FORM, fifo)
    if only ~= band or #fifo > 26 then return nil end -- it has jobs of another priority
  end
  local chunk = filled > 0 and call('HGET', FIFO, queue .. NUL .. struct.pack('>I6I7', band, last)) or ''

  local now = context[1]
  if not now then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  now = store_time(now, N[1], context[2])

  local heads, bodies, arrived, chunks, at, seq = {}, {}, {}, {}, 1, N[5]
  for i = 1, n do
    local id, row = ids[i], rows[i]
    local kind = kinds[row[1]]
    if not kind.names then
      kind.names, kind.count = queue .. NUL .. kind[2] .. NUL, 0
      kind.cold = cmsgpack.pack({priority, kind[5], 0 - priority, 0, kind[6], kind[7], kind[8], false})
    end
    kind.count, seq = kind.count + 1, seq + 2 -- its arrival, and its number in the order
    local low = seq % 256
    local high = (seq - low) / 256 % 256
    heads[2 * i - 1] = id
    heads[2 * i] = struct.pack($HEAD_FORM, $State.READY, $IN_FIFO, 0, 0, 0, 0, 0, 0, seq, row[2], seq - 1, now, now, 0, 0, 0, '',
      #kind.names, kind.names, kind.cold, high, high * 1103823438081, low)
    bodies[2 * i - 1], bodies[2 * i] = id, string.sub(ARGV[4], at, at + row[3] - 1)
    arrived[2 * i - 1], arrived[2 * i] = seq - 1, id
    at = at + row[3]
    if filled >= $FIFO_CHUNK then
      chunks[#chunks + 1], chunks[#chunks + 2] = queue .. NUL .. struct.pack('>I6I7', band, last), chunk
      last, filled, chunk = last + 1, 0, ''
    end
    chunk, filled = chunk .. struct.pack('>I7c16', seq, id), filled + 1
  end
  N[5], N[7] = seq, N[7] + bytes
  chunks[#chunks + 1], chunks[#chunks + 2] = queue .. NUL .. struct.pack('>I6I7', band, last), chunk
  chunks[#chunks + 1], chunks[#chunks + 2] = 'c' .. queue, struct.pack($FIFO_FORM, band, first, used, last, filled, ready + n)

  call('HSET', KEYS[1], 'n', struct.pack($NUMBERS_FORM, unpack(N, 1, 12)))
  call('HSET', HEAD, unpack(heads))
  call('HSET', KEYS[4], unpack(bodies))
  call('ZADD', KEYS[19], unpack(arrived))
  call('HSET', FIFO, unpack(chunks))
  for i = 1, #kinds do call('HINCRBY', KEYS[11], kinds[i].names .. $State.READY, kinds[i].count) end
  if kept[3] ~= 'A' then call('HSET', SET, 'A' .. queue, 'A') end -- nobody waits: the next waiter finds it armed
  for g = 1, #groups do groups[g] = 1 end
  return groups, now
end
