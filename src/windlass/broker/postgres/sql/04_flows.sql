-- Flows: what the end of a parent does to the jobs that wait for it.
--
-- Keys touched: edge, fate and the dependents' own. Cost: at most 100 dependents a step; sweep tells the rest.

-- in: the id of a parent. out: what is known of it; brought back if it was in the past, since somebody depends on it.
CREATE OR REPLACE FUNCTION _parent(p_id uuid) RETURNS job LANGUAGE plpgsql AS $$
DECLARE
    p job;
BEGIN
    SELECT * INTO p FROM job WHERE id = p_id;
    IF NOT FOUND AND _recall(p_id) THEN
        SELECT * INTO p FROM job WHERE id = p_id;
    END IF;
    RETURN p;
END $$;

-- Keep a parent until a job has ended. One that is gone ties nobody, should its id come again.
CREATE OR REPLACE FUNCTION _add_edge(p job, p_child bigint, p_on_failure smallint, p_open boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p.n IS NULL OR p.pruned_until IS NOT NULL THEN
        RETURN;
    ELSIF NOT p.has_children THEN
        DELETE FROM edge WHERE parent = p.id AND NOT open;   -- of jobs that depended on another one under its id
        UPDATE job SET has_children = true WHERE n = p.n;
    END IF;
    INSERT INTO edge (parent, child, on_failure, open) VALUES (p.id, p_child, p_on_failure, p_open) ON CONFLICT DO NOTHING;
END $$;

-- Resolve the edges to a parent that has ended. An end can cascade (a cancelled dependent has dependents): the work is
-- a line of fates, not a recursion, and the bound is on the whole of it.
CREATE OR REPLACE FUNCTION _tell(p_parent uuid, p_state smallint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_i bigint;
    v_left integer;
BEGIN
    IF NOT EXISTS (SELECT FROM edge WHERE parent = p_parent AND open) THEN
        RETURN;
    END IF;
    INSERT INTO fate (parent, state) VALUES (p_parent, p_state) RETURNING i INTO v_i;
    IF _setting('windlass.telling') <> '' THEN
        RETURN;
    END IF;
    v_left := coalesce(nullif(_setting('windlass.fan_out'), '')::integer, FAN_OUT);
    PERFORM set_config('windlass.telling', 'on', true);
    v_left := v_left - _resolve_fates(v_i, v_left);
    PERFORM set_config('windlass.telling', '', true), set_config('windlass.fan_out', v_left::text, true);
END $$;

-- in: the first fate to look at, and how many edges at most. out: how many were resolved. Oldest end first.
CREATE OR REPLACE FUNCTION _resolve_fates(p_from bigint, p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    f fate;
    e edge;
    c job;
    v_told integer := 0;
BEGIN
    WHILE v_told < p_limit LOOP
        SELECT * INTO f FROM fate WHERE i >= p_from ORDER BY i LIMIT 1;
        EXIT WHEN NOT FOUND;
        e := NULL;
        IF f.state <> STATE_DEAD THEN
            SELECT * INTO e FROM edge WHERE parent = f.parent AND open ORDER BY child LIMIT 1;
        ELSIF NOT EXISTS (SELECT FROM job WHERE id = f.parent AND state <> STATE_DEAD AND pruned_until IS NULL) THEN
            -- Otherwise it was replayed meanwhile: its death does not count for those that were not told.
            SELECT * INTO e FROM edge WHERE parent = f.parent AND open AND on_failure = ON_FAILURE_RUN ORDER BY child LIMIT 1;
        END IF;
        IF e.child IS NULL THEN
            DELETE FROM fate WHERE i = f.i;
            CONTINUE;
        END IF;
        UPDATE edge SET open = false WHERE parent = e.parent AND child = e.child;
        v_told := v_told + 1;
        SELECT * INTO c FROM job WHERE n = e.child;
        IF _rule_edge(e.on_failure, f.state) = 'cancel' THEN
            PERFORM _finish(c, c.state, 'parent failed', STATE_CANCELLED::smallint, 'parent failed');
            PERFORM _drop_if_unkept(c.n);
        ELSE
            c.waiting_for := c.waiting_for - 1;
            IF c.waiting_for = 0 THEN
                PERFORM _unblock(c);
            ELSE
                UPDATE job SET waiting_for = c.waiting_for WHERE n = c.n;
            END IF;
        END IF;
    END LOOP;
    RETURN v_told;
END $$;

-- Whether an unfinished job, or an end that its dependents have yet to be told, depends on a job. Those that wait for a
-- dead parent have no claim on it: when it goes, their edges act.
CREATE OR REPLACE FUNCTION _is_needed(j job) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN j.has_children AND (
        EXISTS (SELECT FROM fate WHERE parent = j.id)
        OR EXISTS (
            SELECT FROM edge e CROSS JOIN LATERAL (SELECT * FROM job WHERE n = e.child OFFSET 0) c
            WHERE e.parent = j.id AND c.state BETWEEN STATE_BLOCKED AND STATE_RUNNING AND NOT (j.state = STATE_DEAD AND e.open)));
END $$;

-- Whether a blocked job waits for a dead parent.
CREATE OR REPLACE FUNCTION _has_dead_parent(j job) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN j.waiting_for > 0 AND EXISTS (
        SELECT FROM edge e CROSS JOIN LATERAL (SELECT * FROM job WHERE id = e.parent OFFSET 0) p
        WHERE e.child = j.n AND e.open AND p.state = STATE_DEAD AND p.pruned_until IS NULL);
END $$;
