-- Large jobs that differ in nothing but their ids and payloads, whose rows come by COPY: it fills many pages at once, which is what such
-- jobs cost (`docs/decisions/0007-postgres.md`, Rows by COPY). Three calls: a number and the time are drawn; then, in one transaction, COPY
-- writes rows of `job` with these, and what an enqueue is besides is done, under the lock of the namespace. Nobody sees any of it before.
--
-- Keys touched: as `enqueue_alike`. Cost: a row a job, one per hundred jobs and one per task.

-- The first number of up to 1,024 jobs, and the time at which they are accepted. No lock: nothing is promised by either. Gives up:
-- WL001 if the jobs of this queue need the namespace to themselves, WL005 if their places depend on more than their priority, or if the
-- clock was set back.
CREATE OR REPLACE FUNCTION enqueue_number(p_now bigint, p_queue text) RETURNS bigint[] LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    x record;
    v_at bigint := _seen_at(p_now);
BEGIN
    SELECT q.laned OR q.sequence OR m.max_size IS NOT NULL AS busy, q.age_step IS NOT NULL OR q.bands IS NOT NULL AS banded, m.mark
    INTO x FROM queue q, meta m WHERE q.name = p_queue;
    IF x.busy IS NOT FALSE THEN
        PERFORM _must_be_alone();
    ELSIF x.banded THEN
        RAISE EXCEPTION 'the bands of a queue are told under the lock alone' USING ERRCODE = 'WL005';
    ELSIF v_at < x.mark THEN
        RAISE EXCEPTION 'the clock was set back' USING ERRCODE = 'WL005';
    END IF;
    RETURN ARRAY[nextval('number') * 1024, v_at];
END $$;

-- What is left to do for jobs whose rows were copied in this transaction. in: what they were written with; p_first: the smallest of
-- their ids; p_sizes: the bytes of their payloads, in the order of their numbers. out: nothing; all of them are created. Gives up:
-- WL001 as above; WL004 if an id was sent before, or a sweep has moved the clock on meanwhile; WL005 as above.
--
-- The lock comes last, since nothing ends a COPY whose client is frozen. Who has the namespace to itself may meanwhile wait for one of
-- these rows (the same id, a change of the table): that would be a deadlock, which PostgreSQL looks for after a second. Before
-- that, this gives up, and its caller begins anew with the lock first.
CREATE OR REPLACE FUNCTION enqueue_copied(
    p_at bigint, p_n bigint, p_first uuid, p_sizes integer[], p_task text, p_queue text, p_priority smallint, p_due bigint,
    p_expires_at bigint, p_max_attempts integer
) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
DECLARE
    x record;
    v_state smallint := CASE WHEN p_due > p_at THEN 1 ELSE 2 END;
    v_jobs bigint[] := array(SELECT generate_series(p_n, p_n + cardinality(p_sizes) - 1));
    v_ids uuid[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1464422980, 'job'::regclass::oid::integer);
    SELECT q.laned OR q.sequence OR m.max_size IS NOT NULL AS busy, q.age_step IS NOT NULL OR q.bands IS NOT NULL AS banded,
        q.unlimited, q.has_blocks, q.emit = 2 AS emits, m.slots, m.mark,
        p_first <= (SELECT id FROM absorbed ORDER BY id DESC LIMIT 1) AS old
    INTO x FROM queue q, meta m WHERE q.name = p_queue;
    IF x.busy IS NOT FALSE THEN
        PERFORM _must_be_alone();
    ELSIF x.banded THEN
        RAISE EXCEPTION 'the bands of a queue are told under the lock alone' USING ERRCODE = 'WL005';
    ELSIF p_at < x.mark THEN   -- by whatever: from here a clock that was set back looks as a client that slept for long
        RAISE EXCEPTION 'a sweep has moved the clock on' USING ERRCODE = 'WL004';
    END IF;
    PERFORM _file_alike(v_jobs, p_sizes, p_task, p_queue, CASE v_state WHEN 2 THEN -p_priority ELSE 0 END, v_state, p_expires_at,
        p_max_attempts, x.unlimited, x.has_blocks);
    IF x.old OR NOT _is_beyond_past(p_first, x.slots) THEN
        v_ids := array(SELECT j.id FROM job j WHERE j.n = ANY (v_jobs));
        IF _may_be_known(v_ids, p_first, x.slots) THEN
            RAISE EXCEPTION 'an id was sent before' USING ERRCODE = 'WL004';
        END IF;
    END IF;
    IF x.emits THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, after, attempt, fence)
        SELECT p_at, j.id, j.task, j.queue, j.lane, 'enqueue', j.state, 0, 0 FROM job j WHERE j.n = ANY (v_jobs) ORDER BY j.n;
    END IF;
    PERFORM _wake(ARRAY[p_queue]);
END $$;
