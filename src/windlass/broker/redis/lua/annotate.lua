-- annotate: what running jobs say of themselves; kept only if (job, fence) is the live lease.
--
-- ARGV[2]  notes: job, fence, extend or false, permille or false, message, lines, memo name or false, memo
-- Returns  a verdict per note
-- Writes   head, past, time
-- Cost     O(notes · log n); the memos of a job are one field, at most 1 MiB
-- include: settling
local MEMOS, MEMO_BYTES = 100, 1048576

local function memos_with(j, name, value) -- nil: too many, or too large
  local memos = j.x.memos and unpack_(past(j, 'm')) or {}
  local n, bytes = 0, #value
  for known, memo in pairs(memos) do
    if known ~= name then n, bytes = n + 1, bytes + #memo end
  end
  if n >= MEMOS or bytes > MEMO_BYTES then return nil end
  memos[name] = value
  return pack(memos)
end

local function note(a)
  local j = job(a[1])
  if not is_live(j, a[2]) then return late(a[1], a[2])[1] end
  local x, memos = j.x, nil
  if a[7] then
    memos = memos_with(j, a[7], a[8])
    if not memos then return 'refused' end
  end
  if a[3] and x.deadline then
    zrem(TIME, 'V' .. n7(x.deadline) .. n7(j.arrival) .. j.id)
    x.deadline = NOW + a[3]
    zadd(TIME, 'V' .. n7(x.deadline) .. n7(j.arrival) .. j.id)
  end
  if a[4] then x.permille, x.message = a[4], a[5] end
  for i = 1, #a[6] do
    x.logs = (x.logs or 0) + 1
    set_past(j, 'l' .. (x.logs - 1) % 100, a[6][i])
  end
  if memos then
    set_past(j, 'm', memos)
    x.memos = 1
  end
  touch(j)
  return 'applied'
end

local notes, ids, answers = unpack_(ARGV[2]), {}, {}
for i = 1, #notes do ids[i] = notes[i][1] end
load_leases(ids)
for i = 1, #notes do answers[i] = note(notes[i]) end
flush(false)
return answers
