-- open: make every key of the namespace exist, and be a real table, for good.
--
-- A script with a declared key that is absent gets TRYAGAIN throughout a slot migration. A hash whose values are
-- all short is kept as a list, on which HSCAN ignores COUNT: hence a value of 65 bytes.
-- Returns  the format in which the namespace is kept (see context.lua), 0 if it holds nothing yet
-- Cost     O(1)
-- include: call
local GUARD = string.rep('-', 65)
-- Looked for first: at maxmemory a write would be refused, and workers must be able to start and drain.
for i = 1, 12 do
  if call('HEXISTS', KEYS[i], '') == 0 then call('HSET', KEYS[i], '', GUARD) end
end
for i = 13, 19 do
  if not call('ZSCORE', KEYS[i], GUARD) then call('ZADD', KEYS[i], i < 19 and 0 or -1, GUARD) end
end
local numbers = call('HGET', KEYS[1], 'n')
return numbers and string.byte(numbers, 89) or 0
