-- Forget messages that were taken. Receipts of what was taken back meanwhile are passed over.
-- KEYS: the hash of what is held, until when      ARGV: receipts
for _, receipt in ipairs(ARGV) do
    redis.call('HDEL', KEYS[1], receipt)
    redis.call('ZREM', KEYS[2], receipt)
end
