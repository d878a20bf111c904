-- annotate: what running jobs say of themselves; kept only if (job, fence) is the live lease.
--
-- ARGV[2]  notes: job, fence, extend or false, permille or false, message, lines, memo name or false, memo
-- Returns  a verdict per note
-- Writes   head, past, time
-- Cost     O(notes · log n); the memos of a job are one field, at most 1 MiB
-- include: write

local function memos_with(j, name, value) -- nil: too many, or too large
  local memos = j.rare.memos and decode(jobs.past(j, 'm')) or {}
  local n, bytes = 0, #value
  for known, memo in pairs(memos) do
    if known ~= name then n, bytes = n + 1, bytes + #memo end
  end
  if n >= $MEMOS or bytes > $MEMO_BYTES then return nil end
  memos[name] = value
  return encode(memos)
end

local function note(item)
  local id, fence, extend, permille, message, lines, name, memo = unpack(item)
  local j = jobs.get(id)
  if not leases.is_live(j, fence) then return leases.late(id, fence)[1] end
  local rare, memos = j.rare, nil
  if name then
    memos = memos_with(j, name, memo)
    if not memos then return $Verdict.REFUSED end
  end
  if extend and rare.deadline then leases.set_deadline(j, NOW + extend) end
  if permille then rare.permille, rare.message = permille, message end
  for i = 1, #lines do
    rare.logs = (rare.logs or 0) + 1
    jobs.set_past(j, 'l' .. (rare.logs - 1) % $LOG_LINES, lines[i])
  end
  if memos then
    jobs.set_past(j, 'm', memos)
    rare.memos = 1
  end
  jobs.touch(j)
  return $Verdict.APPLIED
end

local notes, ids, answers = decode(ARGV[2]), {}, {}
for i = 1, #notes do ids[i] = notes[i][1] end
leases.load(ids)
for i = 1, #notes do answers[i] = note(notes[i]) end
flush(false)
return answers
