-- override: set or reset the operators' layer of a document, if its version is the expected one.
--
-- ARGV[2]  defaults, kind, name, lane, body or false, expected version
-- Returns  {change, version}
-- Writes   set, names, meta; lane and ring as declare
-- Cost     as declare
-- include: keeping
local a = unpack_(ARGV[2])
DEFAULTS = a[1]
local body = a[5]
local doc = paper(a[2], a[3], a[4])
if doc.version ~= a[6] then return {'conflict', doc.version} end
if (doc.override or false) == body then return {'unchanged', doc.version} end
if doc.kind == 'queue' and not queue(doc.name) then return {'unknown queue', doc.version} end
local refused = why_not(doc, doc.declared, body)
if refused then return {refused, doc.version} end
put(doc, 'override', 'o', body)
local answer = apply(doc)
flush() -- settings are small, and workers that start on a full server declare theirs
return answer
