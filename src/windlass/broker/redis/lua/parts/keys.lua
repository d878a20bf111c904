-- Unique keys: a record of its own, which outlives the job's.
--
-- KEY   queue NUL lane NUL task NUL key: holder, follower (16 bytes each), then mode, window, accepted, until
-- TIME  K until key
-- module: keys
-- include: jobs
local READ, NOBODY = {}, string.rep(NUL, 16)

function keys.place(queue, lane, task, key) return queue .. NUL .. lane .. NUL .. task .. NUL .. key end
function keys.of(j) return keys.place(j.kind.queue, j.kind.lane, j.kind.task, j.rare.key) end

function keys.get(place) -- false: nobody holds it
  local k = READ[place]
  if k == nil then
    local s = hget(KEY, place)
    k = false
    if s then
      local a, follower = decode(sub(s, 33)), sub(s, 17, 32)
      k = {place = place, holder = sub(s, 1, 16), follower = follower ~= NOBODY and follower or nil, mode = a[1],
        window = a[2], accepted = a[3], till = a[4]}
    end
    READ[place] = k
  end
  return k
end

function keys.save(k)
  hset(KEY, k.place, k.holder .. (k.follower or NOBODY) .. encode({k.mode, k.window, k.accepted, k.till}))
end

local function forget_end(k)
  if k.till then zrem(TIME, 'K' .. bytes7(k.till) .. k.place) end
end

function keys.take(place, j) -- it holds the key from now on
  local old = keys.get(place)
  if old then forget_end(old) end
  READ[place] = {place = place, holder = j.id, mode = j.rare.mode, window = j.rare.window, accepted = j.accepted, till = false}
  keys.save(READ[place])
end

function keys.held(j) -- the record of the key that a job holds; nil if it has none, or another holds it
  if not j.rare.key then return nil end
  local k = keys.get(keys.of(j))
  return k and k.holder == j.id and k or nil
end

function keys.release(j) -- it has finished; the job that follows it, if there is one, holds the key next
  if not j.rare.key then return end
  local k = keys.get(keys.of(j))
  if not k then return end
  if k.follower == j.id then
    k.follower = nil
    keys.save(k)
  elseif k.holder == j.id and k.follower then
    local follower = jobs.get(k.follower)
    k.holder, k.follower = follower.id, nil
    k.mode, k.window, k.accepted = follower.rare.mode, follower.rare.window, follower.accepted
    keys.save(k)
    return follower
  elseif k.holder == j.id then
    forget_end(k)
    k.till = rules.held_until(k.mode, k.window, k.accepted, j.finished)
    if k.till <= NOW then
      keys.forget(k.place)
    else
      zadd(TIME, 'K' .. bytes7(k.till) .. k.place)
      keys.save(k)
    end
  end
end

function keys.forget(place)
  hset(KEY, place, false)
  READ[place] = false
end
