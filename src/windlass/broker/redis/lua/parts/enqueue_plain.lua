-- enqueue of plain calls: accepted before the parts below are made.
-- include: plain_calls
local accepted = accept_plain()
if accepted then return accepted end
