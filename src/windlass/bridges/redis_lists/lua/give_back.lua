-- Put messages back to where they are read next, in their order.
-- KEYS: the hash of what is held, until when, then the lists      ARGV: receipts, in the order of taking
for i = #ARGV, 1, -1 do
    local kept = redis.call('HGET', KEYS[1], ARGV[i])
    if kept then
        local colon = string.find(kept, ':', 1, true)
        redis.call('RPUSH', KEYS[2 + tonumber(string.sub(kept, 1, colon - 1))], string.sub(kept, colon + 1))
        redis.call('HDEL', KEYS[1], ARGV[i])
        redis.call('ZREM', KEYS[2], ARGV[i])
    end
end
