-- What operators do, job by job: each is judged by the state that was expected of it.
-- A target: 1 job, 2 expected state or -1, then what the verb needs. An answer: {effect, state or -1, by or ""}
-- include: write, accept

local function operate(items, operation)
  local ids, answers = {}, {}
  for i = 1, #items do ids[i] = items[i][1] end
  jobs.load(ids)
  for i = 1, #items do
    local item = items[i]
    local j = jobs.get(item[1])
    if not j then
      answers[i] = {$Effect.NOT_FOUND, -1, ''}
    elseif item[2] >= 0 and item[2] ~= j.state then
      answers[i] = {$Effect.WRONG_STATE, j.state, ''}
    else
      answers[i] = operation(j, item)
    end
  end
  flush(false)
  return answers
end
