-- The time that a verb sees (core/session.py): never before the mark, which is the time of the last sweep. But a clock that was
-- set back by more than a TTL is followed. A rule with a part of its own: `plain_calls` needs no other.
local function store_time(clock, mark, ttl) return clock + ttl < mark and clock or math.max(clock, mark) end
