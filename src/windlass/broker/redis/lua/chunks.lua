-- Which chunks the fifos of a queue have. By band: 1 first chunk, 2 entries of it that are used up, 3 last chunk,
-- 4 entries in it, 5 jobs that are live. FIFO c queue: per band, the band and these, 26 bytes.
local CHUNKS = '>I6I6BI6BI6'

local function read_fifos(s)
  local all = {}
  for at = 1, s and #s or 0, 26 do
    local band, first, used, last, filled, live = struct.unpack(CHUNKS, s, at)
    all[band - BAND_ZERO] = {first, used, last, filled, live}
  end
  return all
end

local function write_fifos(all) -- false: there are none
  local s = false
  for band, f in pairs(all) do
    s = (s or '') .. struct.pack(CHUNKS, band + BAND_ZERO, f[1], f[2], f[3], f[4], f[5])
  end
  return s
end
