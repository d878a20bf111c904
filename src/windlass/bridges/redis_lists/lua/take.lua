-- Take messages out of lists and hold them for a while, so that the death of a reader loses none.
-- KEYS: the hash of what is held, until when, then the lists in the order in which they are read
-- ARGV: how many, for how long (ms), what the receipts begin with
-- Returns receipt and message, for each.
local held, due = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What a reader has taken and not said more of comes first. The newest goes back first: the oldest is next.
local late = redis.call('ZRANGE', due, '-inf', now, 'BYSCORE', 'LIMIT', 0, 1000)
for i = #late, 1, -1 do
    local kept = redis.call('HGET', held, late[i])
    redis.call('HDEL', held, late[i])
    redis.call('ZREM', due, late[i])
    if kept then
        local colon = string.find(kept, ':', 1, true)
        -- Whoever took it may have had more steps of priority than this reader: then it goes to the last list.
        local list = KEYS[2 + tonumber(string.sub(kept, 1, colon - 1))] or KEYS[#KEYS]
        redis.call('RPUSH', list, string.sub(kept, colon + 1))
    end
end

local left, taken = tonumber(ARGV[1]), {}
for number = 3, #KEYS do
    while left > 0 do
        local message = redis.call('RPOP', KEYS[number])
        if not message then
            break
        end
        left = left - 1
        local receipt = ARGV[3] .. string.format('%06d', #taken / 2)
        redis.call('HSET', held, receipt, (number - 2) .. ':' .. message)
        redis.call('ZADD', due, now + ARGV[2], receipt)
        taken[#taken + 1] = receipt
        taken[#taken + 1] = message
    end
end
return taken
