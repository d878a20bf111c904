-- Wakes: the one place where they are rung. A queue's wake is armed until a waiter takes it, or has a list of waiters;
-- then one of them is told, on the channel of its process.
--
-- SET    A queue: A (armed) or W (somebody may wait)
-- NAMES  w queue NUL since (7 bytes) channel NUL number: a waiter
-- module: wakes
-- include: store

function wakes.waiter(queue, since, channel, number)
  return 'w' .. queue .. NUL .. bytes7(since) .. channel .. NUL .. number
end

function wakes.chosen(armed) -- the waiters to tell, read before anything is written. armed: queues by name
  local chosen = {}
  for name in pairs(armed) do
    local flag = hget(SET, 'A' .. name)
    if flag ~= 'A' then
      chosen[#chosen + 1] = {name, flag == 'W' and zpage(NAMES, 'w' .. name .. NUL, 10) or {}}
    end
  end
  return chosen
end

function wakes.ring(chosen)
  for i = 1, #chosen do
    local name, waiting = chosen[i][1], chosen[i][2]
    local at, told = #name + 10, false -- where the channel begins
    for k = 1, #waiting do
      -- It may wait for other queues, too; it takes those entries away itself.
      local m = waiting[k]
      local split = string.find(m, NUL, at, true)
      call('ZREM', NAMES.k, m)
      if call('PUBLISH', sub(m, at, split - 1), sub(m, split + 1)) > 0 then
        told = true
        break
      end
    end
    if not told then call('HSET', SET.k, 'A' .. name, 'A') end
  end
end
