-- What the short ways have names for.
-- include: call
local META, SET, HEAD, BODY, PAST, FIFO, LANE, _, SESS, GONE, COUNT, LOG, READY, RING, LEASE, _, TIME, NAMES, ARRIVED = unpack(KEYS)
local NUL, LAST = '\0', '\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255\255'
local pack, unpack_, sub, concat = cmsgpack.pack, cmsgpack.unpack, string.sub, table.concat
local ENTRY, BAND_ZERO, PER_CHUNK = 23, 17592186044416, 64
local NUMBERS = '>i8i8i8i8i8i8i8i8i8i8i8B'
