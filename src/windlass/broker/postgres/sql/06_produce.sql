-- The verb enqueue, and its short way for what most calls are: jobs without keys, parents and lanes, in plain queues.
--
-- Keys touched: those of `05_enqueue.sql`; by the short way job, delta and event_in, which are only inserted into. Cost:
-- O(jobs log n); by the short way two rows a job and one per task.

-- in: plain jobs, beside others: as arrays of their columns. All but ids and payloads may be cut short: then the first element
-- stands for all (nothing, if there is none). out: nothing; all of them are created. Gives up (WL004, or a unique violation) if
-- an id was sent before, and (WL001) if a queue is not plain. Cost: two rows a job and one per task.
CREATE OR REPLACE FUNCTION enqueue_plain(
    p_now bigint, p_ids uuid[], p_payloads bytea[], p_tasks text[], p_queues text[], p_priorities smallint[], p_delays bigint[],
    p_run_at bigint[], p_expires bigint[], p_headers bytea[], p_tags bytea[], p_max_attempts integer[], p_revisions bigint[],
    p_flows text[]
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_at bigint;
    v_met boolean;
    x record;
BEGIN
    PERFORM _begin_beside(p_now);
    v_at := _at();
    SELECT count(*) AS known, bool_or(q.laned OR q.sequence) AS busy, bool_or(q.age_step IS NOT NULL OR q.bands IS NOT NULL) AS banded,
        bool_or(q.emit = 2) AS emits, (SELECT max_size IS NOT NULL FROM meta) AS bounded
    INTO x FROM queue q WHERE q.name = ANY (p_queues);
    IF x.bounded OR x.busy OR x.known < (CASE cardinality(p_queues) WHEN 1 THEN 1 ELSE (SELECT count(DISTINCT u) FROM unnest(p_queues) u) END) THEN
        PERFORM _must_be_alone();
    END IF;
    SELECT EXISTS (SELECT FROM absorbed WHERE id = ANY (p_ids)) OR EXISTS (SELECT FROM edge WHERE parent = ANY (p_ids)) INTO v_met;
    IF v_met OR _may_be_past(p_ids) THEN
        RAISE EXCEPTION 'an id was sent before' USING ERRCODE = 'WL004';
    END IF;
    WITH given AS MATERIALIZED (
        SELECT u.id, nextval('number') AS n, coalesce(u.task, p_tasks[1]) AS task, coalesce(u.queue, p_queues[1]) AS queue,
            coalesce(u.priority, p_priorities[1]) AS priority, u.payload,
            CASE WHEN coalesce(u.run_at, p_run_at[1]) IS NULL THEN v_at + coalesce(u.delay, p_delays[1])
                ELSE greatest(v_at, coalesce(u.run_at, p_run_at[1])) END AS due,
            v_at + u.expires AS expires_at, u.headers, u.tags, coalesce(u.max_attempts, p_max_attempts[1]) AS max_attempts,
            coalesce(u.revision, p_revisions[1]) AS revision, coalesce(u.flow, p_flows[1]) AS flow
        FROM unnest(p_ids, p_payloads, p_tasks, p_queues, p_priorities, p_delays, p_run_at, p_expires, p_headers, p_tags, p_max_attempts,
            p_revisions, p_flows)
            AS u (id, payload, task, queue, priority, delay, run_at, expires, headers, tags, max_attempts, revision, flow)
    ), filed AS MATERIALIZED (
        SELECT g.*, CASE WHEN g.due > v_at THEN 1 ELSE 2 END::smallint AS state, octet_length(g.payload) AS size,
            CASE WHEN g.due > v_at THEN 0 WHEN NOT x.banded THEN -g.priority
                ELSE (SELECT _band_of(q, g.priority, g.due) FROM queue q WHERE q.name = g.queue) END AS band
        FROM given g
    ), made AS (
        INSERT INTO job (id, n, seq, state, priority, band, max_attempts, revision, queue, lane, task, accepted_at, due_at, size,
            flow, expires_at, headers, tags, payload)
        SELECT f.id, f.n, f.n, f.state, f.priority, f.band, f.max_attempts, f.revision, f.queue, '', f.task, v_at, f.due, f.size,
            f.flow, f.expires_at, f.headers, f.tags, f.payload
        FROM filed f ORDER BY f.id   -- as everybody else: two who send the same ids wait for each other, but never in a circle
    ), placed AS (
        INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect)
        SELECT f.queue, '', f.band, f.n, f.n, f.task, f.size, f.expires_at, f.max_attempts <= 1, false FROM filed f WHERE f.state = 2
    )
    INSERT INTO delta (queue, task, state, n, bytes)
    SELECT f.queue, f.task, f.state, count(*), sum(f.size) FROM filed f GROUP BY f.queue, f.task, f.state;
    IF x.emits THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, after, attempt, fence)
        SELECT v_at, j.id, j.task, j.queue, j.lane, 'enqueue', j.state, 0, 0
        FROM job j JOIN queue q ON q.name = j.queue AND q.emit = 2 WHERE j.id = ANY (p_ids) ORDER BY j.n;
    END IF;
    PERFORM _wake(p_queues);
END $$;

-- in: groups as one list of jobs; p_ends: where each group ends.
-- out: one receipt a job, in their order.
CREATE OR REPLACE FUNCTION enqueue(
    p_now bigint, p_ends integer[],
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
    PERFORM _begin_alone(p_now);
    v_jobs := _asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes, p_wins, p_delays, p_run_at,
        p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of, p_edge_parents, p_edge_on);
    FOREACH v_end IN ARRAY p_ends LOOP
        RETURN QUERY SELECT * FROM _enqueue_group(v_jobs[v_from : v_end]);
        v_from := v_end + 1;
    END LOOP;
    PERFORM _wake(p_queues);
END $$;
