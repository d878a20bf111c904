-- The context of a call, the numbers of the namespace, and its time: max(clock, mark), but for a long step back.
local CTX = unpack_(ARGV[1])
local TTL, WINDOW, EVENTS_KEPT, MAX_SIZE, CHANNEL = CTX[2], CTX[3], CTX[4], CTX[5], CTX[6]

-- mark, live, swept (-1: never), left, seq, version, bytes, log end, log first, gone first, gone end, format: the number
-- of the format of all records, which changes with any of them (records.py knows it, too)
local NUMBERS, FORMAT = '>i8i8i8i8i8i8i8i8i8i8i8B', 3
local N = {}
do
  local kept = hget(META, 'n')
  local m = kept and {struct.unpack(NUMBERS, kept)} or {0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0}
  N.mark, N.live, N.swept, N.left, N.seq, N.version = m[1], m[2], m[3], m[4], m[5], m[6]
  N.bytes, N.log_end, N.log_first, N.gone_first, N.gone_end = m[7], m[8], m[9], m[10], m[11]
  N.before = kept
end

local NOW
do
  local clock = CTX[1]
  if not clock then
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2]
  end
  NOW = (clock + TTL < N.mark) and clock or max(clock, N.mark)
end

local function number()
  N.seq = N.seq + 1
  return N.seq
end

local function numbers()
  return struct.pack(NUMBERS, N.mark, N.live, N.swept, N.left, N.seq, N.version, N.bytes, N.log_end, N.log_first,
    N.gone_first, N.gone_end, FORMAT)
end
