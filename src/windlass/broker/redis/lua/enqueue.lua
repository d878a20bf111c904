-- enqueue: accept groups, each by itself; a group comes into being whole or not at all.
--
-- Here is the way of one plain job, which is how most programs enqueue: no function and hardly a table is made. Others,
-- and one that workers wait for, go to enqueue_many, and what is not plain from there to enqueue_any.
--
-- ARGV[2], ARGV[3]  see enqueue_many
-- Returns  {1}; what the other ways do otherwise
-- Writes   meta, head, body, arrived, fifo, count; set where nobody was told yet
-- Cost     O(1)
-- otherwise: enqueue_many
-- include: short
local asked, stamps = ARGV[2], ARGV[3]
if string.byte(asked) ~= 1 or #asked < 27 then return otherwise() end -- not simple, or none at all
local id, _, size, body, behind = struct.unpack('>c16I2I4I4c0', asked, 2)
local numbers = call('HGET', META, 'n')
if behind <= #asked or not numbers then return otherwise() end
local s = unpack_(stamps)[2][1] -- 1 queue, 2 task, 3 lane, 4 priority, 5 max_attempts, 6 tags, 7 revision
local queue, context = s[1], unpack_(ARGV[1])

local known = call('HMGET', SET, 'F' .. queue, 'R' .. queue, 'A' .. queue)
local fifo = call('HGET', FIFO, 'c' .. queue)
if not known[1] or s[3] ~= '' or known[3] == 'W' -- not plain; in a lane; somebody waits
  or (known[2] and string.byte(known[2], 2) == 1) -- a queue with lanes
  or (fifo and #fifo ~= 26) -- several bands
  or call('HEXISTS', HEAD, id) == 1 or call('HEXISTS', GONE, id) == 1 then
  return otherwise()
end
local n = {struct.unpack(NUMBERS, numbers)} -- see plain.lua
if context[5] and n[7] + size > context[5] then return otherwise() end

local now = context[1]
if not now then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end
if now < n[1] and now + context[2] >= n[1] then now = n[1] end

local band, first, used, last, filled, live = BAND_ZERO - s[4], 1, 0, 1, 0, 0
if fifo then
  local of
  of, first, used, last, filled, live = struct.unpack('>I6I6BI6BI6', fifo) -- see chunks.lua
  if of ~= band then return otherwise() end
end
if filled >= PER_CHUNK then last, filled = last + 1, 0 end
local chunk = queue .. NUL .. struct.pack('>I6I7', band, last)
local before = filled > 0 and call('HGET', FIFO, chunk) or ''

local seq = n[5] + 2
n[5], n[7] = seq, n[7] + size
local kind, low = queue .. NUL .. s[2] .. NUL, seq % 256
local high = (seq - low) / 256 % 256
local head = struct.pack('>BBBBBI4I8I8I4I8I8I8I2', 2, 1, 0, 0, s[5] <= 1 and 1 or 0, 0, 0, seq, size, seq - 1, now, now, #kind)
  .. kind .. pack({s[4], s[5], 0 - s[4], 0, s[6], s[7], false})
  .. struct.pack('>BI6B', high, high * 1103823438081, low) -- the end of a head: see jobs.lua

call('HSET', META, 'n', struct.pack(NUMBERS, unpack(n, 1, 12)))
call('HSET', HEAD, id, head)
call('HSET', BODY, id, body)
call('ZADD', ARRIVED, seq - 1, id)
call('HSET', FIFO, chunk, before .. struct.pack('>I7c16', seq, id),
  'c' .. queue, struct.pack('>I6I6BI6BI6', band, first, used, last, filled + 1, live + 1))
call('HINCRBY', COUNT, kind .. '2', 1)
if known[3] ~= 'A' then call('HSET', SET, 'A' .. queue, 'A') end
return {1}
