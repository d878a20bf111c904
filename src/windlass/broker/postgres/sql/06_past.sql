-- The past: finished jobs that nothing depends on. They leave `job` when they are settled, or by sweep.
--
-- A row of the past is never changed. What is forgotten is said by the queue's horizon, which sweep moves over the oldest
-- rows, so many at a time as it may; a segment that is behind every horizon is emptied whole. Keys touched: past, horizon,
-- segment, meta, queue (its segment), delta. Cost: an index entry a job that is forgotten, nothing for one that is removed.

-- Whether a job of the past is forgotten (kind: as `kept`), its result (HORIZON_OF_RESULTS), or even that it was there (HORIZON_OF_GONE and `kept`).
CREATE OR REPLACE FUNCTION _is_behind(p_queue text, p_kind smallint, p_finished_at bigint, p_n bigint) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM horizon h WHERE h.queue = p_queue AND h.kind = p_kind AND (p_finished_at, p_n) <= (h.finished_at, h.n));
END $$;

-- A row of the past as the job it is: with what is forgotten taken out. Of a job that has ended once, and is done, it says the only end by the session,
-- and by the run time in the place of a deadline, which no finished job has: a record of it would make the row a fifth larger.
CREATE OR REPLACE FUNCTION _as_kept(j job) RETURNS job LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF j.deliveries IS NULL AND j.session IS NOT NULL THEN
        j.deliveries := ARRAY[ROW(j.fence, j.attempt, j.session, j.claimed_at, j.finished_at, 'done', true, NULL, j.deadline, NULL)::ended];
        j.session := NULL;
        j.deadline := NULL;
    END IF;
    IF j.kept IS NULL THEN
        RETURN j;
    ELSIF _is_behind(j.queue, j.kept, j.finished_at, j.n) THEN
        -- Once a pass has seen it gone, it stays so, also if the clock is set back.
        j.pruned_until := j.finished_at + (SELECT resend_window FROM meta);
        IF j.pruned_until <= (SELECT mark FROM meta) OR _is_behind(j.queue, (HORIZON_OF_GONE + j.kept)::smallint, j.finished_at, j.n) THEN
            j.pruned_until := 0;
        END IF;
        j.kept := NULL;
        j.payload := '';
        j.headers := NULL;
        j.tags := NULL;
        j.result := NULL;
        j.error := NULL;
        j.size := 0;
    ELSIF j.kept = KEPT_WITH_RESULT AND _is_behind(j.queue, HORIZON_OF_RESULTS::smallint, j.finished_at, j.n) THEN
        j.size := j.size - octet_length(j.result);
        j.result := NULL;
        j.kept := KEPT_PLAIN;
    END IF;
    RETURN j;
END $$;

-- Looks into one segment of the past, a statement for each: one over all of them costs 50 µs or more, most of it for opening
-- tables that it then leaves alone. `_in_segment`: the newest job of this id, since an id may come again once it is forgotten.
-- `_is_beyond_past`: whether an id, and so every larger one, is beyond all of the past. Ids grow with time, so those of new jobs mostly
-- are; every enqueue asks, so the segment is found by halves: each comparison is made ready anew in every transaction.
DO $do$
DECLARE
    v_jobs text := '';
    v_newest text[] := array_fill(''::text, ARRAY[15], ARRAY[0]);
    v_width integer := 1;
BEGIN
    FOR v_segment IN 0 .. 14 LOOP
        -- The order apart, or else a server that believes the past to be empty would read it in this order.
        v_jobs := v_jobs || format('WHEN %s THEN SELECT * INTO j FROM (SELECT * FROM past_%s WHERE id = p_id OFFSET 0) p ORDER BY p.n DESC LIMIT 1; ',
            v_segment, v_segment);
        v_newest[v_segment] := format('SELECT id INTO v_id FROM past_%s ORDER BY id DESC LIMIT 1; ', v_segment);
    END LOOP;
    WHILE v_width < 15 LOOP
        FOR v_segment IN 0 .. 14 - v_width BY v_width * 2 LOOP
            v_newest[v_segment] := format('IF v_segment < %s THEN %s ELSE %s END IF; ', v_segment + v_width, v_newest[v_segment], v_newest[v_segment + v_width]);
        END LOOP;
        v_width := v_width * 2;
    END LOOP;
    EXECUTE format('CREATE OR REPLACE FUNCTION _in_segment(p_segment smallint, p_id uuid) RETURNS job LANGUAGE plpgsql STABLE AS $$ '
        'DECLARE j job; BEGIN CASE p_segment %s END CASE; RETURN j; END $$', v_jobs);
    EXECUTE format('CREATE OR REPLACE FUNCTION _is_beyond_past(p_id uuid, p_segments smallint[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ '
        'DECLARE v_segment smallint; v_id uuid; BEGIN FOREACH v_segment IN ARRAY p_segments LOOP %s IF p_id <= v_id THEN RETURN false; END IF; END LOOP; '
        'RETURN true; END $$', v_newest[0]);
END $do$;

-- The job of this id in the past; NULL if there is none.
CREATE OR REPLACE FUNCTION _past(p_id uuid) RETURNS job LANGUAGE plpgsql STABLE AS $$
DECLARE
    j job;
    o job;
    v_segment smallint;
BEGIN
    FOREACH v_segment IN ARRAY (SELECT segments FROM meta) LOOP
        o := _in_segment(v_segment, p_id);
        IF o.n > j.n OR j.n IS NULL THEN
            j := o;
        END IF;
    END LOOP;
    RETURN CASE WHEN j.n IS NULL THEN NULL ELSE _as_kept(j) END;
END $$;

-- Bring a job that is kept back from the past: something depends on it, or changes it. out: whether it was there.
CREATE OR REPLACE FUNCTION _recall(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    j job := _past(p_id);
BEGIN
    IF j.n IS NULL OR (j.pruned_until IS NOT NULL AND j.pruned_until <= _at()) THEN
        RETURN false;
    END IF;
    DELETE FROM past p WHERE p.segment = j.segment AND p.id = p_id AND p.n = j.n;
    INSERT INTO job (id, n, state, priority, attempt, max_attempts, crashes, revision, queue, lane, task, band, seq, accepted_at,
        due_at, fence, claimed_at, size, started, replays, kept, reason, parent, flow, expires_at, finished_at, pruned_until, key,
        mode, win, hold_key, hold_reason, held_since, held_times, permille, message, headers, tags, deliveries, error, result,
        payload, timer)
    VALUES (j.id, j.n, j.state, j.priority, j.attempt, j.max_attempts, j.crashes, j.revision, j.queue, j.lane, j.task, j.band, j.seq,
        j.accepted_at, j.due_at, j.fence, j.claimed_at, j.size, j.started, j.replays, j.kept, j.reason, j.parent, j.flow,
        j.expires_at, j.finished_at, j.pruned_until, j.key, j.mode, j.win, j.hold_key, j.hold_reason, j.held_since, j.held_times,
        j.permille, j.message, j.headers, j.tags, j.deliveries, j.error, j.result, j.payload, j.pruned_until);
    RETURN true;
END $$;

-- Whether a queue keeps its finished jobs by their time alone, and tells nobody of them.
CREATE OR REPLACE FUNCTION _has_past(q queue) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT q.emit = EMIT_NONE AND q.retention_count IS NULL AND q.retention > 0
$$;

-- The rule of what is in the past: jobs that are done or cancelled, that no other job, flow or log refers to, of a queue that has
-- a past. Dead letters stay in `job`, since operators change them one by one. p_forgotten: the queue has forgotten later ends
-- already, because the clock was set back: in the past the job would be forgotten at once.
CREATE OR REPLACE FUNCTION _goes_to_past(
    q queue, p_forgotten boolean, p_has_children boolean, p_after_ids uuid[], p_flow text, p_log_lines bigint
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT _has_past(q) AND NOT p_forgotten AND NOT p_has_children AND p_after_ids IS NULL AND p_flow = '' AND p_log_lines = 0
$$;

-- The class of retention of a queue.
CREATE OR REPLACE FUNCTION _class(q queue) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN greatest(q.retention, q.result_ttl) <= 3600000000 THEN 0
        WHEN greatest(q.retention, q.result_ttl) <= 172800000000 THEN 1 ELSE 2 END::smallint
$$;

-- The segment that a class writes to now; opened if there is none.
CREATE OR REPLACE FUNCTION _open_segment(p_class smallint) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    v_segment smallint := (SELECT s.segment FROM segment s WHERE s.class = p_class AND s.opened_at IS NOT NULL AND s.closed_at IS NULL);
BEGIN
    IF v_segment IS NULL THEN
        SELECT s.segment INTO v_segment FROM segment s WHERE s.class = p_class AND s.opened_at IS NULL ORDER BY s.segment LIMIT 1;
        UPDATE segment s SET opened_at = _at(), closed_at = NULL WHERE s.segment = v_segment;
        UPDATE meta SET segments = segments || v_segment WHERE NOT v_segment = ANY (segments);
    END IF;
    RETURN v_segment;
END $$;

-- Use the next segment of each class where it is time, and empty those that are wholly forgotten. To empty one, nobody may be
-- reading it, and a step that comes meanwhile waits, too: so it is tried for a moment, one segment a pass, and again the next time. As
-- the owner of the schema: to empty a table is not among the rights of those who only work here.
CREATE OR REPLACE FUNCTION _turn_segments() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    s segment;
    v_at bigint := _at();
    v_kept bigint;
    v_patience text := current_setting('lock_timeout');
BEGIN
    -- The clock was set back: nobody waits until it has caught up. What a segment holds says whether it may go.
    UPDATE segment SET opened_at = v_at WHERE opened_at > v_at;
    UPDATE segment SET closed_at = v_at WHERE closed_at > v_at;
    FOR s IN SELECT * FROM segment WHERE opened_at IS NOT NULL ORDER BY opened_at LOOP
        v_kept := coalesce((SELECT max(greatest(q.retention, q.result_ttl)) FROM queue q WHERE _class(q) = s.class), 0);
        IF s.closed_at IS NULL THEN
            IF v_at - s.opened_at > greatest(v_kept / 3, 60000000)
                AND EXISTS (SELECT FROM segment o WHERE o.class = s.class AND o.opened_at IS NULL) THEN
                UPDATE segment SET closed_at = v_at WHERE segment = s.segment;
                UPDATE queue q SET segment = _open_segment(s.class) WHERE _class(q) = s.class;
            END IF;
        ELSIF v_at - s.closed_at > v_kept AND NOT _holds_anything(s.segment)
            AND NOT EXISTS (SELECT FROM queue q WHERE q.segment = s.segment) THEN
            BEGIN
                PERFORM set_config('lock_timeout', '20', true);
                EXECUTE format('TRUNCATE past_%s', s.segment);
                UPDATE segment SET opened_at = NULL, closed_at = NULL WHERE segment = s.segment;
                UPDATE meta SET segments = array_remove(segments, s.segment);
            EXCEPTION WHEN lock_not_available THEN
                RETURN;   -- it has put the setting back
            END;
            PERFORM set_config('lock_timeout', v_patience, true);
        END IF;
    END LOOP;
END $$;

-- Whether a segment has a job that is not forgotten, or one that may be sent again: a look at the newest of each queue and kind.
CREATE OR REPLACE FUNCTION _holds_anything(p_segment smallint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM queue q CROSS JOIN (VALUES (KEPT_PLAIN::smallint), (KEPT_WITH_RESULT::smallint)) k (kind) CROSS JOIN LATERAL (
            SELECT p.finished_at, p.n FROM past p WHERE p.segment = p_segment AND p.queue = q.name AND p.kept = k.kind AND p.kept IS NOT NULL
            ORDER BY p.finished_at DESC, p.n DESC LIMIT 1) newest
        WHERE newest.finished_at + (SELECT resend_window FROM meta) > _at()
           OR NOT _is_behind(q.name, k.kind, newest.finished_at, newest.n));
END $$;

-- Forget the oldest of a queue's past: jobs without or with a result (kind: as `kept`) that ended until a time, or results
-- (HORIZON_OF_RESULTS). out: how many, at most p_limit.
CREATE OR REPLACE FUNCTION _forget_past(q queue, p_kind smallint, p_until bigint, p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    h horizon;
    v_segments smallint[] := (SELECT segments FROM meta);
    v_kept smallint := CASE p_kind WHEN HORIZON_OF_RESULTS THEN KEPT_WITH_RESULT ELSE p_kind END;
    v_gone bigint[];
    v_ends bigint[];
BEGIN
    IF p_limit <= 0 OR cardinality(v_segments) = 0 THEN
        RETURN 0;
    END IF;
    SELECT * INTO h FROM horizon WHERE queue = q.name AND kind = p_kind;
    h.finished_at := coalesce(h.finished_at, -1);
    h.n := coalesce(h.n, -1);
    WITH old AS MATERIALIZED (
        SELECT p.n, p.finished_at, p.task, p.id, p.state, p.lane, p.attempt, p.fence,
            CASE WHEN p_kind = HORIZON_OF_RESULTS THEN octet_length(p.result)
                 WHEN p_kind = KEPT_WITH_RESULT AND _is_behind(q.name, HORIZON_OF_RESULTS::smallint, p.finished_at, p.n) THEN p.size - octet_length(p.result)
                 ELSE p.size END AS size
        FROM past p
        WHERE p.segment = ANY (v_segments) AND p.queue = q.name AND p.kept = v_kept AND p.kept IS NOT NULL
          AND (p.finished_at, p.n) > (h.finished_at, h.n) AND p.finished_at <= p_until
          -- A result of a job that is itself forgotten is not there any more.
          AND (p_kind <> HORIZON_OF_RESULTS OR NOT _is_behind(q.name, KEPT_WITH_RESULT::smallint, p.finished_at, p.n))
        ORDER BY p.finished_at, p.n LIMIT p_limit
    ), counted AS (
        INSERT INTO delta (queue, task, state, n, bytes) SELECT q.name, o.task, 0, 0, -sum(o.size) FROM old o GROUP BY o.task
    ), logged AS (
        INSERT INTO event_in (at, job, task, queue, lane, move, before, attempt, fence)
        SELECT _at(), o.id, o.task, q.name, o.lane, 'prune', o.state, o.attempt, o.fence FROM old o
        WHERE q.emit = EMIT_ALL AND p_kind <> HORIZON_OF_RESULTS ORDER BY o.finished_at, o.n
    )
    SELECT array_agg(o.n), array_agg(o.finished_at) INTO v_gone, v_ends FROM old o;
    IF v_gone IS NULL THEN
        RETURN 0;
    END IF;
    INSERT INTO horizon (queue, kind, finished_at, n)
    VALUES (q.name, p_kind, v_ends[cardinality(v_ends)], v_gone[cardinality(v_gone)])
    ON CONFLICT (queue, kind) DO UPDATE SET finished_at = excluded.finished_at, n = excluded.n;
    RETURN cardinality(v_gone);
END $$;

-- The clock is set back behind a mark: of what was gone by then, nobody knows again. Cost: a row or two a queue that has forgotten something.
CREATE OR REPLACE FUNCTION _keep_gone(p_mark bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO horizon AS g (queue, kind, finished_at, n)
    SELECT h.queue, HORIZON_OF_GONE + h.kind, least(h.finished_at, p_mark - m.resend_window),
        CASE WHEN h.finished_at <= p_mark - m.resend_window THEN h.n ELSE 9223372036854775807 END
    FROM horizon h CROSS JOIN meta m WHERE h.kind IN (KEPT_PLAIN, KEPT_WITH_RESULT)
    ON CONFLICT (queue, kind) DO UPDATE SET finished_at = excluded.finished_at, n = excluded.n
    WHERE (excluded.finished_at, excluded.n) > (g.finished_at, g.n);
END $$;

-- How many jobs of a queue's past are not forgotten; no more than p_limit are counted.
CREATE OR REPLACE FUNCTION _count_past(p_queue text, p_limit bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*) FROM (SELECT FROM _oldest_past(p_queue, p_limit) LIMIT p_limit) c);
END $$;

-- The oldest jobs of a queue's past that are not forgotten, at most p_limit of each kind, in no order.
CREATE OR REPLACE FUNCTION _oldest_past(p_queue text, p_limit bigint, OUT id uuid, OUT finished_at bigint, OUT n bigint)
RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_segments smallint[] := (SELECT segments FROM meta);
BEGIN
    IF cardinality(v_segments) > 0 THEN
        RETURN QUERY
            SELECT o.id, o.finished_at, o.n
            FROM unnest(ARRAY[KEPT_PLAIN, KEPT_WITH_RESULT]::smallint[]) k (kept) LEFT JOIN horizon h ON h.queue = p_queue AND h.kind = k.kept
            CROSS JOIN LATERAL (
                SELECT p.id, p.finished_at, p.n FROM past p
                WHERE p.segment = ANY (v_segments) AND p.queue = p_queue AND p.kept = k.kept AND p.kept IS NOT NULL
                  AND (p.finished_at, p.n) > (coalesce(h.finished_at, -1), coalesce(h.n, -1))
                ORDER BY p.finished_at, p.n LIMIT p_limit) o;
    END IF;
END $$;

-- Move jobs that have finished in other ways than by a plain settle: at most so many of a queue, of each kind. The newest are looked at:
-- those that may not go gather in front of them, and would keep all later ones from being looked at.
CREATE OR REPLACE FUNCTION _retire(q queue, p_limit integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT _has_past(q) THEN
        RETURN;
    END IF;
    WITH old AS MATERIALIZED (
        SELECT j.place FROM (VALUES (KEPT_PLAIN::smallint), (KEPT_WITH_RESULT::smallint)) k (kept) CROSS JOIN LATERAL (
            SELECT ctid AS place, * FROM job WHERE queue = q.name AND kept = k.kept AND kept IS NOT NULL
            ORDER BY finished_at DESC, n DESC LIMIT p_limit) j
        WHERE _goes_to_past(q, EXISTS (SELECT FROM horizon h WHERE h.queue = q.name AND h.finished_at >= j.finished_at),
            j.has_children, j.after_ids, j.flow, j.log_lines)
    ), gone AS (
        DELETE FROM job j USING old o WHERE j.ctid = o.place RETURNING j.*
    )
    INSERT INTO past (id, n, state, priority, attempt, max_attempts, crashes, revision, queue, lane, task, band, seq, accepted_at,
        due_at, fence, claimed_at, size, started, cancel_requested, has_children, has_memos, waiting_for, replays, log_lines, kept,
        reason, parent, flow, expires_at, finished_at, key, mode, win, hold_key, hold_reason, held_since, held_times, permille,
        message, headers, tags, deliveries, error, result, payload, segment)
    SELECT g.id, g.n, g.state, g.priority, g.attempt, g.max_attempts, g.crashes, g.revision, g.queue, g.lane, g.task, g.band, g.seq,
        g.accepted_at, g.due_at, g.fence, g.claimed_at, g.size, g.started, false, false, false, 0, g.replays, 0, g.kept,
        g.reason, g.parent, g.flow, g.expires_at, g.finished_at, g.key, g.mode, g.win, g.hold_key, g.hold_reason, g.held_since,
        g.held_times, g.permille, g.message, g.headers, g.tags, g.deliveries, g.error, g.result, g.payload, q.segment
    FROM gone g;
END $$;
