-- Enqueue and completion in a transaction of the caller's own, beside the caller's own writes.
--
-- Such a transaction may stay open for minutes. So it takes no lock and only inserts: a row of `inbox` per job. Once it
-- has committed, the next step that has the namespace to itself accepts each group as `enqueue` would have; a claim and a
-- read that find something there make such a step first. Rolled back means never enqueued.

-- in: as `enqueue`. out: one receipt a job, in their order: by the jobs and the inbox as this transaction sees them. It does not see what others
-- have yet to commit. So keys are met again when a group is taken in: a call that was told DUPLICATE stays one; another one
-- may find that a job has taken its key since, or that the job that it was to replace has begun. It runs with the rights of the
-- namespace's owner: who may use the schema may enqueue, and needs no right to read the jobs of others.
CREATE OR REPLACE FUNCTION enqueue_here(
    p_now bigint, p_ends integer[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[]
) RETURNS SETOF receipt LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    v_jobs asked[] := _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_delays, p_run_at,
        p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of, p_edge_parents, p_edge_on);
    v_from integer := 1;
    v_end integer;
BEGIN
    PERFORM _begin(p_now);
    FOREACH v_end IN ARRAY p_ends LOOP
        RETURN QUERY SELECT * FROM _enqueue_group_here(v_jobs[v_from : v_end]);
        v_from := v_end + 1;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION _enqueue_group_here(g asked[]) RETURNS SETOF receipt LANGUAGE plpgsql AS $$
DECLARE
    v_refused receipt[] := array(SELECT f FROM _refusals(g, false, true) f);
BEGIN
    IF cardinality(v_refused) > 0 THEN
        RETURN QUERY SELECT * FROM _refused_whole(g, v_refused);
    ELSE
        RETURN QUERY SELECT * FROM _line_up_group(g, NULL);
    END IF;
END $$;

-- Put a group that has been found acceptable into the inbox. p_parent: the job that spawned it. out: one receipt a job.
CREATE OR REPLACE FUNCTION _line_up_group(g asked[], p_parent uuid) RETURNS SETOF receipt LANGUAGE plpgsql AS $$
DECLARE
    a asked;
    r receipt;
    v_call bigint := nextval('number');
    v_i integer := 0;
BEGIN
    FOREACH a IN ARRAY g LOOP
        r := _known_here(a.id);
        IF r.status IS NULL THEN
            r := _receipt_under_key(a);
            a.status := r.status;
            a.of := r.of;
            -- Counted from the call, not from the commit.
            IF a.delay > 0 AND a.run_at IS NULL THEN
                a.run_at := _at() + a.delay;
                a.delay := 0;
            END IF;
            v_i := v_i + 1;
            INSERT INTO inbox (call, i, parent, job) VALUES (v_call, v_i, p_parent, a);
        END IF;
        r.i := a.i;
        RETURN NEXT r;
    END LOOP;
END $$;

-- Whether a call of this id waits to be taken in.
CREATE OR REPLACE FUNCTION _is_in_inbox(p_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM inbox b WHERE (b.job).id = p_id);
END $$;

-- As `_known`, with what waits to be taken in. STABLE, so that it sees jobs and inbox at one moment: a call that is being taken in is in one of them.
CREATE OR REPLACE FUNCTION _known_here(p_id uuid) RETURNS receipt LANGUAGE plpgsql STABLE AS $$
DECLARE
    r receipt := _known(p_id);
BEGIN
    IF r.status IS NULL THEN
        SELECT CASE (b.job).status WHEN 'created' THEN 'duplicate' ELSE (b.job).status END, coalesce((b.job).of, p_id)
        INTO r.status, r.of FROM inbox b WHERE (b.job).id = p_id LIMIT 1;
    END IF;
    RETURN r;
END $$;

-- The receipt of a new call by its key, with what waits to be taken in.
CREATE OR REPLACE FUNCTION _receipt_under_key(a asked) RETURNS receipt LANGUAGE plpgsql STABLE AS $$
DECLARE
    m record := _under_key(a);
    v_first uuid;
BEGIN
    IF a.key IS NOT NULL AND (m.does = 'follow' OR (m.state <= STATE_RUNNING) IS NOT TRUE) THEN
        -- The first call that waits will hold the key, or follow its runner.
        SELECT (w.job).id INTO v_first FROM (
            SELECT * FROM inbox b WHERE (b.job).queue = a.queue AND (b.job).lane = a.lane AND (b.job).task = a.task AND (b.job).key = a.key OFFSET 0) w
        WHERE (w.job).status <> 'duplicate' ORDER BY w.call, w.i LIMIT 1;
        IF FOUND THEN
            m.does := _rule_key(a.mode, STATE_READY::smallint, true);
            m.of := v_first;
        END IF;
    END IF;
    RETURN CASE m.does
        WHEN 'replace' THEN ROW(NULL, 'replaced', m.of, NULL, NULL)::receipt
        WHEN 'duplicate' THEN ROW(NULL, 'duplicate', m.of, NULL, NULL)::receipt
        ELSE ROW(NULL, 'created', NULL, NULL, NULL)::receipt
    END;
END $$;

-- Settle a lease as done, together with what the caller's transaction writes: called last before its commit, and followed by
-- an ordinary settle, which answers ALREADY.
--
-- The lock on the job's row (FOR KEY SHARE) lets others note things about it, but a step that would take the lease away has to
-- lock it in a way that this excludes, and passes it over. So either the lease is gone before, and this is refused, or it
-- stays until the transaction has ended: the effect happens exactly once, whatever is killed or wakes up late. All that
-- follows from the end (limits, keys, dependents, children) is left to the first step after the commit that has the
-- namespace to itself. in: as one settlement. out: the verdict; unless it is applied, the caller rolls back.
CREATE OR REPLACE FUNCTION settle_here(
    p_now bigint, p_job uuid, p_fence bigint, p_runtime bigint, p_result bytea, p_too_large text,
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[],
    OUT verdict text, OUT outcome text, OUT state smallint, OUT why text
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    j job;
    v_spawn asked[] := _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_delays, p_run_at,
        p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of, p_edge_parents, p_edge_on);
BEGIN
    PERFORM _begin(p_now);
    PERFORM FROM job WHERE id = p_job FOR KEY SHARE;
    j := _load(p_job);
    IF NOT _holds(j, p_fence) THEN
        SELECT l.verdict, l.outcome, l.state INTO verdict, outcome, state FROM _late(j, p_fence) l;
        RETURN;
    END IF;
    why := p_too_large;
    IF why IS NULL AND cardinality(v_spawn) > 0 THEN
        SELECT f.why INTO why FROM _refusals(v_spawn, true, true) f LIMIT 1;
    END IF;
    IF why IS NOT NULL THEN
        verdict := 'refused';
        RETURN;
    END IF;
    outcome := 'done';
    state := STATE_DONE;
    verdict := 'already';
    INSERT INTO aftermath (job, fence, runtime, result) VALUES (p_job, p_fence, p_runtime, p_result) ON CONFLICT (job) DO NOTHING;
    IF FOUND THEN
        verdict := 'applied';
        -- After the end, so that a job may spawn its successor under its own key.
        PERFORM _line_up_group(v_spawn, p_job);
    END IF;
END $$;

-- Accept what was committed, oldest first; at most 1,000 ends, and groups until they are 1,000 jobs, a step. Needs the namespace to itself.
CREATE OR REPLACE FUNCTION _take_in() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x aftermath;
    b inbox;
    v_jobs asked[];
    v_count integer := 0;
BEGIN
    FOR x IN SELECT * FROM aftermath ORDER BY i LIMIT 1000 LOOP
        PERFORM _follow_up(x);
        DELETE FROM aftermath WHERE job = x.job;
    END LOOP;
    FOR b IN SELECT * FROM inbox WHERE i = 1 ORDER BY call LIMIT 1000 LOOP
        WITH gone AS (DELETE FROM inbox o WHERE o.call = b.call RETURNING o.i, o.job)
        SELECT array_agg(g.job ORDER BY g.i) INTO v_jobs FROM gone g;
        PERFORM _accept(v_jobs, b.parent);
        v_count := v_count + cardinality(v_jobs);
        EXIT WHEN v_count >= 1000;
    END LOOP;
END $$;

-- Before a group is accepted: take in all that waits under its ids and keys and those of its parents. Needs the namespace to itself.
CREATE OR REPLACE FUNCTION _take_in_before(g asked[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM inbox) AND _names_waiting(g) LOOP
        PERFORM _take_in();
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION _names_waiting(g asked[]) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM unnest(g) a WHERE EXISTS (SELECT FROM inbox b WHERE (b.job).id = ANY (a.after_ids || a.id)) OR EXISTS (
            SELECT FROM inbox b WHERE (b.job).queue = a.queue AND (b.job).lane = a.lane AND (b.job).task = a.task AND (b.job).key = a.key))
$$;

-- Bring about what follows from a lease that was settled in a caller's own transaction.
CREATE OR REPLACE FUNCTION _follow_up(x aftermath) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    j job;
BEGIN
    j := _load(x.job);
    IF (j.state = STATE_RUNNING AND j.fence = x.fence) IS NOT TRUE THEN
        RETURN;
    END IF;
    PERFORM _note_time(j.task, x.runtime);
    PERFORM _count_bytes(j, coalesce(octet_length(x.result), 0)::bigint);
    j.result := x.result;
    j.size := j.size + coalesce(octet_length(x.result), 0);
    PERFORM _end_lease(j, _ruling('done', 'done', STATE_DONE), false, NULL, NULL, x.runtime);
    PERFORM _drop_if_unkept(j.n);
END $$;

-- Whether a job whose row was locked just now had been settled in a caller's own transaction: one that has committed since this step
-- began, and took in what there was. Then what follows from it is brought about now.
CREATE OR REPLACE FUNCTION _was_settled_here(p_job uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    x aftermath;
BEGIN
    SELECT * INTO x FROM aftermath WHERE job = p_job;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM _follow_up(x);
    DELETE FROM aftermath WHERE job = p_job;
    RETURN true;
END $$;

-- Take in what was committed, before a read. p_before: what an earlier call answered. out: NULL once nothing waits that waited at the first call; else
-- what to go on with.
CREATE OR REPLACE FUNCTION take_in(p_now bigint, p_before bigint) RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_before bigint := coalesce(p_before, nextval('number'));
BEGIN
    PERFORM _begin_exclusive(p_now);
    PERFORM _ring();
    IF EXISTS (SELECT FROM inbox WHERE call < v_before) OR EXISTS (SELECT FROM aftermath WHERE i < v_before) THEN
        RETURN v_before;
    END IF;
    RETURN NULL;
END $$;
