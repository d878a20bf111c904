-- take: move an offset and enqueue the jobs of what lies between, in one step, or do nothing.
--
-- ARGV[2], [3], [4]  as enqueue, one group   ARGV[5]  see take_plain.lua
-- Returns  {status, time, receipts as enqueue gives them for a group}; raced or foreign: {status, what is kept of the offset or false}
-- Writes   as enqueue; set, names
-- Cost     as enqueue
-- include: take_plain, write, accept
local packet = decode(ARGV[2])
local groups, all = calls.read({packet[1], packet[2], packet[3], ARGV[3], ARGV[4]})
calls.look_up(all)
local refused = calls.refusals(all, false)
if #refused > 0 then return {$Take.REFUSED, NOW, {'refused', unpack(refused)}} end
local receipts, grows = accept.all(groups[1]), false
for i = 1, #receipts do grows = grows or receipts[i] == $Status.CREATED end
flush(grows)
move_offset(NOW)
return {status, NOW, receipts}
