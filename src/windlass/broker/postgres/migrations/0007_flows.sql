-- Layout 7: flows that have an unfinished job are found by name, whatever came after them (`unfinished_flows`). Neither index
-- names what a claim changes. The columns behind the flow are for the order in which a flow's jobs are asked for: no other
-- index of the table has it, so the planner cannot take another.
CREATE INDEX IF NOT EXISTS job_unfinished ON job (flow, waits, hold_key) WHERE flow <> '' AND finished_at IS NULL;
CREATE INDEX IF NOT EXISTS job_failed     ON job (flow, finished_at)     WHERE flow <> '' AND kept = 2;
