-- open: make every key of the namespace exist, and be a real table, for good.
--
-- A script with a declared key that is absent gets TRYAGAIN throughout a slot migration. A hash whose values are
-- all short is kept as a list, on which HSCAN ignores COUNT: hence a value of 65 bytes.
-- Returns  1
-- Cost     O(1)
-- include: base
for i = 1, 12 do call('HSETNX', KEYS[i], '', string.rep('-', 65)) end
for i = 13, 18 do call('ZADD', KEYS[i], 'NX', 0, string.rep('-', 65)) end
return 1
