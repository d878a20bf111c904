-- take: whether its offset may move; then takes of plain calls, before the parts below are made.
--
-- ARGV[5]  source, its identity, expected offset or false, then or false
-- SET      O source: identity, offset, when it moved   NAMES  O source
-- include: call, rule_take, plain_calls
local source, identity, expect, next_at = unpack(cmsgpack.unpack(ARGV[5]))
local kept = call('HGET', KEYS[2], 'O' .. source)
local stands = kept and cmsgpack.unpack(kept) or {}
local status = rule_take(stands[1], stands[2], identity, expect or nil)
if status ~= $Take.TAKEN then return {status, kept} end

local function move_offset(now) -- the last thing that is written
  if next_at then
    call('HSET', KEYS[2], 'O' .. source, cmsgpack.pack({identity, next_at, now}))
    if not kept then call('ZADD', KEYS[18], 0, 'O' .. source) end
  elseif kept then
    call('HDEL', KEYS[2], 'O' .. source)
    call('ZREM', KEYS[18], 'O' .. source)
  end
end

local accepted, taken_at = accept_plain()
if accepted then
  move_offset(taken_at)
  return {status, taken_at, accepted[1]}
end
