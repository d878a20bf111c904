-- The context of a call, the numbers of the namespace, and its time.
--
-- ARGV[1]  now or false (the server's clock), session_ttl, resend_window, events_kept, max_size or false, channel of ends
-- META     n: mark, live, swept (-1: never), left, seq, version, bytes, end of the log, first of the log, first and end of
--          the pages of graves (8 bytes each), format (1)
-- include: store, clock
local CONTEXT = decode(ARGV[1])
local TTL, WINDOW, EVENTS_KEPT, MAX_SIZE, CHANNEL = CONTEXT[2], CONTEXT[3], CONTEXT[4], CONTEXT[5], CONTEXT[6]

local N = {}
do
  local kept = hget(META, 'n')
  local a = kept and {struct.unpack($NUMBERS_FORM, kept)} or {0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0}
  N.mark, N.live, N.swept, N.left, N.seq, N.version = a[1], a[2], a[3], a[4], a[5], a[6]
  N.bytes, N.log_end, N.log_first, N.grave_first, N.grave_end = a[7], a[8], a[9], a[10], a[11]
  N.before = kept
end

local NOW
do
  local clock = CONTEXT[1]
  if not clock then
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2]
  end
  NOW = store_time(clock, N.mark, TTL)
end

local function number() -- the next of the namespace's sequence
  N.seq = N.seq + 1
  return N.seq
end

local function write_numbers()
  local s = struct.pack($NUMBERS_FORM, N.mark, N.live, N.swept, N.left, N.seq, N.version, N.bytes, N.log_end, N.log_first,
    N.grave_first, N.grave_end, $FORMAT)
  if s ~= N.before then hset(META, 'n', s) end
end
