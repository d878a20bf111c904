-- Flows that have an unfinished job are found by name, whatever came after them.
--
-- in:   layout 3
-- out:  the same tables, and two indexes of the jobs that belong to a flow
-- cost: one look at every job of a flow
CREATE INDEX job_unfinished ON job (flow, state, hold_key) WHERE flow <> '' AND state < 4;
CREATE INDEX job_failed     ON job (flow)                  WHERE flow <> '' AND state = 5 AND pruned_until IS NULL;
