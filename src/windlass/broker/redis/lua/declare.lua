-- declare: documents declared in code, each by itself.
--
-- ARGV[2]  {defaults, declarations: kind, name, lane, body, app, revision}
-- Returns  {change, version} per declaration
-- Writes   set, names, meta; lane and ring of what a changed limit concerns, at most 1,000 lanes
-- Cost     O(declarations + lanes refreshed); a changed layout reads all counts
-- include: keeping
local a, answers = unpack_(ARGV[2]), {}
DEFAULTS = a[1]
for i = 1, #a[2] do answers[i] = declare(a[2][i]) end
flush() -- settings are small, and workers that start on a full server declare theirs
return answers
