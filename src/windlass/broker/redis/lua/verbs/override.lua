-- override: set or reset the operators' layer of a document, if its version is the expected one.
--
-- ARGV[2]  defaults, kind, name, lane, body or false, expected version
-- Returns  {change, version}
-- Writes   set, names, meta; lane and ring as declare
-- Cost     as declare
-- include: write, settings
local defaults, kind, name, lane, body, expect = unpack(decode(ARGV[2]))
settings.set_defaults(defaults)
local doc = settings.document(kind, name, lane)
if doc.version ~= expect then return {$Change.CONFLICT, doc.version} end
if (doc.override or false) == body then return {$Change.UNCHANGED, doc.version} end
if kind == 'queue' and not queues.get(name) then return {$Change.UNKNOWN_QUEUE, doc.version} end
local refused = settings.why_not(doc, doc.declared, body)
if refused then return {refused, doc.version} end
settings.put(doc, 'override', body)
local answer = settings.apply(doc)
flush() -- settings are small, and workers that start on a full server declare theirs
return answer
