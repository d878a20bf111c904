-- settle: end leases, each judged by itself, then answer the ask that came with them.
--
-- ARGV[2]  settlements (see settling.lua)   ARGV[3]  an ask (see handout.lua), or ""
-- Returns  {answers, what claim returns or false}
-- Writes   as claim; past for what is kept of an end, gone for what is not kept
-- Cost     O(items · log n), 100 dependents told; then as claim
-- include: settling, handout
local items, ids, answers = unpack_(ARGV[2]), {}, {}
for i = 1, #items do ids[i] = items[i][1] end
load_leases(ids)
for i = 1, #items do answers[i] = settle(items[i]) end
local c = ARGV[3] ~= '' and claim(unpack_(ARGV[3]))
flush(false)
return {answers, c and claimed(c)}
