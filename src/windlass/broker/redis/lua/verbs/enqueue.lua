-- enqueue: accept groups, each by itself; a group comes into being whole or not at all.
--
-- ARGV[2]  a packet of calls without ids and bodies (see calls.lua)   ARGV[3]  ids   ARGV[4]  bodies
-- Returns  per group: 1 if all were created; else its receipts, or {'refused', {place, why, which} …}
-- Writes   body, head, fifo or ready/time, set, meta, count; key, gone, link, lane, ring, log as asked for
-- Cost     O(jobs · log n), at most 1,000 jobs a group; a plain job is 2 fields and its share of a chunk
-- include: enqueue_plain, write, accept
local packet = decode(ARGV[2])
local groups, all = calls.read({packet[1], packet[2], packet[3], ARGV[3], ARGV[4]})
calls.look_up(all)
local answer = {}
for g = 1, #groups do
  local refused = calls.refusals(groups[g], false)
  if #refused > 0 then
    answer[g] = {'refused', unpack(refused)}
  else
    local receipts = accept.all(groups[g])
    answer[g] = 1
    for i = 1, #receipts do
      if receipts[i] ~= $Status.CREATED then answer[g] = receipts end
    end
  end
end
flush(true)
return answer
