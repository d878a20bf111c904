-- The verb enqueue, and its short way for what most calls are: jobs without keys, parents and lanes, in plain queues.
--
-- Keys touched: those of `05_enqueue.sql`; by the short way job, delta and event_in, which are only inserted into. Cost:
-- O(jobs log n); by the short way two rows a job and one per task.

-- Accept plain jobs, beside others. What it does is what `_accept` would do job by job. Gives up if an id was met in
-- another way than as a job that is kept.
CREATE OR REPLACE FUNCTION _enqueue_plain(
    p_ids uuid[], p_tasks text[], p_queues text[], p_priorities smallint[], p_delays bigint[], p_run_at bigint[],
    p_expires bigint[], p_payloads bytea[], p_headers bytea[], p_tags bytea[], p_max_attempts integer[], p_revisions bigint[],
    p_flows text[]
) RETURNS SETOF receipt LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_fresh uuid[];
    v_met boolean;
    v_emits boolean;
BEGIN
    SELECT EXISTS (SELECT FROM absorbed WHERE id = ANY (p_ids)) OR EXISTS (SELECT FROM edge WHERE parent = ANY (p_ids)),
           EXISTS (SELECT FROM queue WHERE name = ANY (p_queues) AND emit = 2) INTO v_met, v_emits;
    IF v_met THEN
        PERFORM _must_be_alone();
    END IF;
    WITH given AS MATERIALIZED (
        SELECT u.*, q, CASE WHEN u.run_at IS NULL THEN v_at + u.delay ELSE greatest(v_at, u.run_at) END AS due
        FROM unnest(p_ids, p_tasks, p_queues, p_priorities, p_delays, p_run_at, p_expires, p_payloads, p_headers, p_tags,
            p_max_attempts, p_revisions, p_flows) WITH ORDINALITY
            AS u (id, task, queue, priority, delay, run_at, expires, payload, headers, tags, max_attempts, revision, flow, o)
        JOIN queue q ON q.name = u.queue
        ORDER BY u.o
    ), fresh AS (
        INSERT INTO job (id, n, seq, state, priority, band, max_attempts, revision, queue, lane, task, accepted_at, due_at, size,
            flow, expires_at, headers, tags, payload)
        SELECT g.id, nextval('number'), nextval('number'), CASE WHEN g.due > v_at THEN 1 ELSE 2 END, g.priority,
            CASE WHEN g.due > v_at THEN 0 WHEN (g.q).age_step IS NULL AND (g.q).bands IS NULL THEN -g.priority
                ELSE _band_of(g.q, g.priority, g.due) END, g.max_attempts, g.revision, g.queue, '',
            g.task, v_at, g.due, octet_length(g.payload), g.flow, v_at + g.expires, g.headers, g.tags, g.payload
        FROM given g
        ON CONFLICT (id) DO NOTHING
        RETURNING id, queue, task, state, size
    ), counted AS (
        INSERT INTO delta (queue, task, state, n, bytes)
        SELECT f.queue, f.task, f.state, count(*), sum(f.size) FROM fresh f GROUP BY f.queue, f.task, f.state
    )
    SELECT coalesce(array_agg(f.id), '{}') INTO v_fresh FROM fresh f;
    IF cardinality(v_fresh) < cardinality(p_ids)
        AND EXISTS (SELECT FROM job WHERE id = ANY (p_ids) AND pruned_until <= v_at) THEN
        PERFORM _must_be_alone();
    END IF;
    IF v_emits THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, after, attempt, fence)
        SELECT v_at, j.id, j.task, j.queue, j.lane, 'enqueue', j.state, 0, 0
        FROM job j JOIN queue q ON q.name = j.queue AND q.emit = 2 WHERE j.id = ANY (v_fresh) ORDER BY j.n;
    END IF;
    IF cardinality(v_fresh) = cardinality(p_ids) THEN
        RETURN QUERY SELECT u.o::integer, 'created', NULL::uuid, NULL::text, NULL::text
                     FROM unnest(p_ids) WITH ORDINALITY AS u (id, o);
    ELSE
        RETURN QUERY
            SELECT u.o::integer, CASE WHEN u.created THEN 'created' ELSE 'duplicate' END,
                CASE WHEN NOT u.created THEN u.id END, NULL::text, NULL::text
            FROM (SELECT w.id, w.o, w.id = ANY (v_fresh) AND row_number() OVER (PARTITION BY w.id ORDER BY w.o) = 1 AS created
                  FROM unnest(p_ids) WITH ORDINALITY AS w (id, o)) u
            ORDER BY u.o;
    END IF;
END $$;

-- in: groups as one list of jobs; p_ends: where each group ends; p_alone: whether it needs the
-- namespace to itself (the caller remembers which queues do).
-- out: one receipt a job, in their order.
CREATE OR REPLACE FUNCTION enqueue(
    p_now bigint, p_alone boolean, p_ends integer[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[]
) RETURNS SETOF receipt LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_jobs asked[];
    v_from integer := 1;
    v_end integer;
BEGIN
    IF NOT p_alone AND cardinality(p_edge_of) = 0 AND cardinality(array_remove(p_keys, NULL)) = 0
        AND cardinality(array_remove(p_lanes, '')) = 0 THEN
        PERFORM _begin_beside(p_now);
        IF NOT _may_go_short(p_queues) THEN
            PERFORM _must_be_alone();
        END IF;
        RETURN QUERY SELECT * FROM _enqueue_plain(p_ids, p_tasks, p_queues, p_priorities, p_delays, p_run_at, p_expires,
            p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows);
        PERFORM _wake(p_queues);
        RETURN;
    END IF;
    PERFORM _begin_alone(p_now);
    v_jobs := _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_delays, p_run_at,
        p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of, p_edge_parents, p_edge_on);
    FOREACH v_end IN ARRAY p_ends LOOP
        RETURN QUERY SELECT * FROM _enqueue_group(v_jobs[v_from : v_end]);
        v_from := v_end + 1;
    END LOOP;
    PERFORM _wake(p_queues);
END $$;

-- Whether jobs for these queues can be filed without looking at anything else: all are declared, none has lanes or a
-- sequence, and no limit of size has to be watched.
CREATE OR REPLACE FUNCTION _may_go_short(p_queues text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT max_size IS NULL FROM meta) AND NOT EXISTS (
        SELECT FROM (SELECT DISTINCT unnest(p_queues) AS name) u
        LEFT JOIN queue q ON q.name = u.name WHERE q.name IS NULL OR q.laned OR q.sequence);
END $$;
