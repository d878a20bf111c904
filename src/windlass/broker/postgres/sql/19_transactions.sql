-- Enqueue and completion in a transaction of the caller's own, beside the caller's own writes.
--
-- Such a transaction may stay open for minutes. So it takes no lock and only inserts: a row of `inbox` per group. Once it
-- has committed, the next step that has the namespace to itself accepts the group as `enqueue` would have; a claim and a
-- read that find something there make such a step first. Rolled back means never enqueued.

-- in: as `enqueue`. out: one receipt a job, in their order. A key is met twice: here, where a job that holds it now answers
-- DUPLICATE, and when the group is taken in, where one that has taken it since absorbs the call. It runs with the rights of the
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
    a asked;
    r receipt;
    k unique_key;
    v_at bigint := _at();
    v_refused receipt[] := array(SELECT f FROM _refusals(g, false) f);
    v_kept asked[] := '{}';
BEGIN
    IF cardinality(v_refused) > 0 THEN
        RETURN QUERY SELECT * FROM _refused_whole(g, v_refused);
        RETURN;
    END IF;
    FOREACH a IN ARRAY g LOOP
        r := _known(a.id);
        IF r.status IS NULL AND a.key IS NOT NULL AND a.mode <> MODE_REPLACE THEN
            SELECT * INTO k FROM unique_key u WHERE u.queue = a.queue AND u.lane = a.lane AND u.task = a.task AND u.key = a.key;
            IF FOUND AND (k.until IS NULL OR v_at < k.until) THEN
                r.status := 'duplicate';
                r.of := k.holder;
            END IF;
        END IF;
        r.i := a.i;
        IF r.status IS NULL THEN
            r.status := 'created';
            -- Counted from the call, not from the commit.
            IF a.delay > 0 AND a.run_at IS NULL THEN
                a.run_at := v_at + a.delay;
                a.delay := 0;
            END IF;
            v_kept := v_kept || a;
        END IF;
        RETURN NEXT r;
    END LOOP;
    IF cardinality(v_kept) > 0 THEN
        INSERT INTO inbox (jobs) VALUES (v_kept);
    END IF;
END $$;

-- Whether an id was sent in a transaction that is committed but not taken in, or in this one.
CREATE OR REPLACE FUNCTION _is_in_inbox(p_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM inbox b, unnest(b.jobs) j WHERE j.id = p_id);
END $$;

-- Settle a lease as done, together with what the caller's transaction writes: called last before its commit, and followed by
-- an ordinary settle, which answers ALREADY.
--
-- The lock on the job's row (FOR KEY SHARE) lets others note things about it, but whoever would take the lease away has to
-- lock it in a way that this excludes, and passes it over. So either the lease is gone before, and this is refused, or it
-- stays until the transaction has ended: the effect happens exactly once, whoever is killed or wakes up late. All that
-- follows from the end (slots, keys, dependents, children) is left to the first step after the commit that has the
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
        SELECT f.why INTO why FROM _refusals(v_spawn, true) f LIMIT 1;
    END IF;
    IF why IS NOT NULL THEN
        verdict := 'refused';
        RETURN;
    END IF;
    outcome := 'done';
    state := STATE_DONE;
    INSERT INTO aftermath (job, fence, runtime, result, spawn) VALUES (p_job, p_fence, p_runtime, p_result, v_spawn)
    ON CONFLICT (job) DO NOTHING;
    verdict := CASE WHEN FOUND THEN 'applied' ELSE 'already' END;
END $$;

-- Accept what was committed, oldest first; at most 1,000 ends, and groups until they are 1,000 jobs, a step. Needs the namespace to itself.
CREATE OR REPLACE FUNCTION _take_in() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    x aftermath;
    v_i bigint;
    v_jobs asked[];
    v_count integer := 0;
BEGIN
    FOR x IN SELECT * FROM aftermath ORDER BY i LIMIT 1000 LOOP
        PERFORM _follow_up(x);
        DELETE FROM aftermath WHERE job = x.job;
    END LOOP;
    FOR v_i, v_jobs IN SELECT i, jobs FROM inbox ORDER BY i LIMIT 1000 LOOP
        PERFORM _accept(v_jobs, NULL);
        DELETE FROM inbox WHERE i = v_i;
        v_count := v_count + cardinality(v_jobs);
        EXIT WHEN v_count >= 1000;
    END LOOP;
END $$;

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
    IF cardinality(x.spawn) > 0 THEN
        PERFORM _accept(x.spawn, x.job);
    END IF;
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

-- Take in what was committed, before a read.
CREATE OR REPLACE FUNCTION take_in(p_now bigint) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _begin_alone(p_now);
    PERFORM _ring();
END $$;
