-- A session's record: 1 ended, 2 opened, 3 seen, 4 memory, 5 seq, 6 ended at, 7 silent for, 8 leases, 9 ttl, 10 queues,
-- 11 birth. What a claim looks at and changes stands in front, as bytes: ended (1), seq (8), leases (4).
-- include: base

-- The liveness clock as of now, where a sweep would move it; the rule is `liveness_move` in core/session.py.
local function liveness()
  if N.swept < 0 then return N.live end
  local elapsed = NOW - N.swept
  if elapsed > max(1000000, floor(TTL / 5)) then return N.live + 1000000 end
  return N.live + max(0, elapsed)
end

local function read_session(kept)
  local ended, seq, leases = struct.unpack('>BI8I4', kept)
  local s = unpack_(sub(kept, 14))
  s[1], s[5], s[8] = ended == 1, seq, leases
  return s
end

local function write_session(s)
  return struct.pack('>BI8I4', s[1] and 1 or 0, s[5], s[8]) ..
    pack({false, s[2], s[3], s[4], 0, s[6], s[7], 0, s[9], s[10], s[11]})
end
