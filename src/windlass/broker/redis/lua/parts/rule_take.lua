-- Whether an offset may move (core/take.py): of what is kept (nil: nothing) identity and offset; the identity of the source and the
-- offset that is expected (nil: none). A rule apart from the others, since plain takes need it alone.
local function rule_take(identity, at, source, expect)
  if at and identity ~= source then return $Take.FOREIGN end
  return at == expect and $Take.TAKEN or $Take.RACED
end
