-- What operators do, job by job: each is judged by the state that was expected of it.
-- A target: 1 job, 2 expected state or -1, then what the verb needs. An answer: {effect, state or -1, by or ""}
-- include: flush, accept

local function operate(items, operation)
  local ids, answers = {}, {}
  for i = 1, #items do ids[i] = items[i][1] end
  load_jobs(ids)
  for i = 1, #items do
    local item = items[i]
    local j = job(item[1])
    if not j then
      answers[i] = {'not found', -1, ''}
    elseif item[2] >= 0 and item[2] ~= j.state then
      answers[i] = {'wrong state', j.state, ''}
    else
      answers[i] = operation(j, item)
    end
  end
  flush(false)
  return answers
end
