-- Plans that do not depend on what the tables happened to hold when they were made.
--
-- Every statement here is meant to be answered by an index, whatever the size of its tables. Left to itself the planner
-- makes a plan per call while it believes that to pay (2.4 ms instead of 1.5 ms of CPU for one job settled and one claimed), and
-- reads whole tables that were empty when it last looked. So every function that is called from outside asks for one plan,
-- by indexes and nested loops; what has no index (counts, transitions, events under way) is small and read whole.
--
-- in: every function of the schema whose name does not begin with "_". out: nothing. cost: once per installation.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN
        SELECT p.oid FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace
        WHERE s.nspname = current_schema() AND left(p.proname, 1) <> '_'
    LOOP
        EXECUTE format(
            'ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off '
            'SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off', f);
    END LOOP;
END $$;
