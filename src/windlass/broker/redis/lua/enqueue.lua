-- enqueue: accept groups, each by itself; a group comes into being whole or not at all.
--
-- ARGV[2]  groups of calls (see calls.lua)
-- Returns  per group: its receipts, 1 if all were created, or {'refused', {place, why, which} …}
-- Writes   body, head, fifo or ready/time, set, meta, count; key, gone, link, lane, ring, log as asked for
-- Cost     O(jobs · log n), at most 1,000 jobs a group; a plain job is 2 fields and its share of a chunk
-- include: flush, accept
local answer = {}
local groups = unpack_(ARGV[2])
for g = 1, #groups do
  local calls = groups[g]
  look_up(calls)
  local refused = refusals(calls, false)
  if #refused > 0 then
    table.insert(refused, 1, 'refused')
    answer[g] = refused
  else
    local receipts = accept(calls)
    local all = true
    for i = 1, #receipts do all = all and receipts[i] == CREATED end
    answer[g] = all and 1 or receipts
  end
end
flush(true)
return answer
