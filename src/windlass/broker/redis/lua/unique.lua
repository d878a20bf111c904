-- Unique keys: a record of its own, which outlives the job's.
--
-- KEY   queue NUL lane NUL task NUL key: holder, follower (16 bytes each), then mode, window, accepted, until
-- TIME  K until key
-- include: transitions
local REPLACE, THROTTLE = 1, 2
local KEYS_READ = {}

local function key_record(place)
  local k = KEYS_READ[place]
  if k == nil then
    local s = hget(KEY, place)
    if s then
      local a = unpack_(sub(s, 33))
      k = {place = place, holder = sub(s, 1, 16), follower = sub(s, 17, 32), mode = a[1], window = a[2],
        accepted = a[3], till = a[4]}
      if k.follower == string.rep(NUL, 16) then k.follower = nil end
    else
      k = false
    end
    KEYS_READ[place] = k
  end
  return k
end

local function save_key(k)
  hset(KEY, k.place, k.holder .. (k.follower or string.rep(NUL, 16)) .. pack({k.mode, k.window, k.accepted, k.till}))
end

local function drop_key(k)
  if k.till then zrem(TIME, 'K' .. n7(k.till) .. k.place) end
  hset(KEY, k.place, false)
  KEYS_READ[k.place] = false
end

local function new_key(place, j)
  local old = key_record(place)
  if old and old.till then zrem(TIME, 'K' .. n7(old.till) .. place) end
  local k = {place = place, holder = j.id, mode = j.x.mode, window = j.x.window, accepted = j.accepted, till = false}
  KEYS_READ[place] = k
  save_key(k)
end

local function key_place(j) return j.queue .. NUL .. j.lane .. NUL .. j.task .. NUL .. j.x.key end

local function held_key(j)
  if not j.x.key then return nil end
  local k = key_record(key_place(j))
  return k and k.holder == j.id and k or nil
end
