-- declare: documents declared in code, each by itself.
--
-- ARGV[2]  {defaults, declarations: kind, name, lane, body, app, revision}
-- Returns  {change, version} per declaration
-- Writes   set, names, meta; lane and ring of what a changed limit concerns, at most 1,000 lanes
-- Cost     O(declarations + lanes refreshed); a changed layout reads all counts
-- include: write, settings
local defaults, declarations = unpack(decode(ARGV[2]))
local answers = {}
settings.set_defaults(defaults)
for i = 1, #declarations do answers[i] = settings.declare(unpack(declarations[i])) end
flush() -- settings are small, and workers that start on a full server declare theirs
return answers
