-- The life of a job: the one place where states change, leases end and jobs finish.
--
-- Keys touched: job, delta, event_in, moved, memo, log, edge, unique_key, fate and, in queues with lanes, ring and
-- seat. Cost: a few rows a job; what an end tells dependents is bounded by the step (`_tell`).

-- in: a job with its new state (after: NULL if it is removed). Counts the transition, and logs it as asked for.
CREATE OR REPLACE FUNCTION _transition(
    j job, p_before smallint, p_after smallint, p_move text, p_reason text DEFAULT NULL, p_outcome text DEFAULT NULL,
    p_runtime bigint DEFAULT NULL, p_waited bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_emit smallint;
BEGIN
    IF p_before IS DISTINCT FROM p_after THEN
        INSERT INTO delta (queue, task, state, n, bytes)
        SELECT j.queue, j.task, c.state, c.n, 0
        FROM (VALUES (p_before, -1), (p_after, 1)) c (state, n)
        WHERE c.state >= STATE_BLOCKED AND (c.n = 1 OR c.state NOT IN (STATE_DONE, STATE_CANCELLED));
    END IF;
    IF p_before >= STATE_BLOCKED AND p_after IS NOT NULL AND _setting('windlass.recording') <> '' THEN
        INSERT INTO moved (job, queue, task, lane, move, before, after, reason)
        VALUES (j.id, j.queue, j.task, j.lane, p_move, p_before, p_after, p_reason);
    END IF;
    SELECT emit INTO v_emit FROM queue WHERE name = j.queue;
    IF _is_logged(v_emit, p_before, p_after) THEN
        INSERT INTO event_in (at, job, task, queue, lane, move, before, after, reason, outcome, attempt, fence, runtime, waited)
        VALUES (_at(), j.id, j.task, j.queue, j.lane, p_move, nullif(p_before, STATE_UNPLACED), p_after, p_reason, p_outcome,
                j.attempt, j.fence, p_runtime, p_waited);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION _count_bytes(j job, p_bytes bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO delta (queue, task, state, n, bytes) SELECT j.queue, j.task, 0, 0, p_bytes WHERE p_bytes <> 0
$$;

-- Write back a job that is not running, or no longer: its row and its place.
CREATE OR REPLACE FUNCTION _put(j job) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    o record;
BEGIN
    SELECT state, band, seq INTO o FROM job WHERE n = j.n;
    IF o.state = STATE_READY THEN
        PERFORM _leave_place(j, o.band, o.seq);
    END IF;
    IF j.state = STATE_READY THEN
        INSERT INTO ready (queue, lane, band, seq, n, task, size, expires_at, last, suspect)
        VALUES (j.queue, j.lane, j.band, j.seq, j.n, j.task, octet_length(j.payload), CASE WHEN NOT j.started THEN j.expires_at END,
            j.attempt + 1 >= j.max_attempts, j.crashes >= SUSPECT_AFTER);
        UPDATE floor SET seq = j.seq WHERE queue = j.queue AND band = j.band AND seq > j.seq AND j.lane = '';
        PERFORM _note(j.queue);
    END IF;
    UPDATE job SET
        state = j.state, priority = j.priority, attempt = j.attempt, max_attempts = j.max_attempts, crashes = j.crashes,
        revision = j.revision, band = j.band, seq = j.seq, due_at = j.due_at, fence = j.fence, claimed_at = j.claimed_at,
        size = j.size, started = j.started, has_memos = j.has_memos,
        waiting_for = j.waiting_for, replays = j.replays, kept = j.kept, reason = j.reason, line = j.line,
        expires_at = j.expires_at, finished_at = j.finished_at, pruned_until = j.pruned_until, mode = j.mode, win = j.win, hold_key = j.hold_key,
        hold_reason = j.hold_reason, held_since = j.held_since, held_times = j.held_times, permille = j.permille,
        message = j.message, after_ids = j.after_ids, after_on = j.after_on, headers = j.headers, tags = j.tags,
        deliveries = j.deliveries, error = j.error, result = j.result, payload = j.payload,
        timer = CASE WHEN j.state > STATE_RUNNING THEN j.pruned_until WHEN NOT j.started THEN j.expires_at END,
        waits = CASE WHEN j.state IN (STATE_BLOCKED, STATE_SCHEDULED) THEN j.state END
    WHERE n = j.n;
END $$;

-- Let a job wait: scheduled if it is not due, else ready.
CREATE OR REPLACE FUNCTION _make_waiting(j job, p_before smallint, p_move text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF j.due_at > _at() THEN
        j.state := STATE_SCHEDULED;
        j.reason := NULL;
        PERFORM _transition(j, p_before, STATE_SCHEDULED::smallint, p_move);
        PERFORM _schedule(j);
    ELSE
        j.state := STATE_READY;
        j.reason := NULL;
        PERFORM _transition(j, p_before, STATE_READY::smallint, p_move);
        PERFORM _file(j, false);
    END IF;
END $$;

-- Number a job that has just become scheduled: jobs that are due at the same time go in this order.
CREATE OR REPLACE FUNCTION _schedule(j job) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (SELECT sequence FROM queue WHERE name = j.queue) THEN
        j.seq := _draw_numbers();
    END IF;
    PERFORM _put(j);
END $$;

-- Make a scheduled job ready.
CREATE OR REPLACE FUNCTION _promote(j job, p_move text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    j.state := STATE_READY;
    j.reason := NULL;
    PERFORM _transition(j, STATE_SCHEDULED::smallint, STATE_READY::smallint, p_move);
    PERFORM _file(j, false);
END $$;

-- in: how many at most, of which queues (NULL: all). out: how many. Due jobs become ready in order of their times.
CREATE OR REPLACE FUNCTION _promote_due(p_limit bigint, p_queues text[]) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    j job;
    v_at bigint := _at();
    v_count integer := 0;
BEGIN
    -- Most claims find nothing due: one probe per queue says so.
    IF p_queues IS NOT NULL AND NOT EXISTS (
        SELECT FROM unnest(p_queues) u (name) CROSS JOIN LATERAL (
            SELECT FROM job WHERE queue = u.name AND waits = STATE_SCHEDULED AND due_at <= v_at ORDER BY due_at LIMIT 1) d) THEN
        RETURN 0;
    END IF;
    FOR j IN
        SELECT d.*
        FROM queue q CROSS JOIN LATERAL (
            SELECT * FROM job WHERE queue = q.name AND waits = STATE_SCHEDULED AND due_at <= v_at
            ORDER BY due_at, seq LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) d
        WHERE p_queues IS NULL OR q.name = ANY (p_queues)
        ORDER BY d.due_at, d.seq LIMIT p_limit
    LOOP
        PERFORM _promote(j, 'due');
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END $$;

-- Whether a newer call under its key waits for a running job to end.
CREATE OR REPLACE FUNCTION _superseded(j job) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN j.key IS NOT NULL AND EXISTS (
        SELECT FROM unique_key k
        WHERE k.queue = j.queue AND k.lane = j.lane AND k.task = j.task AND k.key = j.key
          AND k.holder = j.id AND k.follower IS NOT NULL);
END $$;

-- The ends of a job's leases with one more: the last ten.
CREATE OR REPLACE FUNCTION _with_end(p_ends ended[], p_end ended) RETURNS ended[] LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(p_ends[greatest(1, cardinality(p_ends) - 8):], '{}') || p_end
$$;

-- What a ruling is told of a job.
CREATE OR REPLACE FUNCTION _facts(j job) RETURNS job_facts LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ROW(j.attempt, j.max_attempts, j.crashes, j.cancel_requested, _superseded(j), coalesce(j.held_times, 0),
        _at() - coalesce(j.held_since, _at()))::job_facts;
END $$;

-- End the lease of a running job as ruled. A settlement has no cause; everything else has one.
CREATE OR REPLACE FUNCTION _end_lease(
    j job, r ruling, p_unstarted boolean, p_cause bytea DEFAULT NULL, p_kind text DEFAULT NULL,
    p_runtime bigint DEFAULT NULL, p_error bytea DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_at bigint := _at();
    v_ran boolean := p_runtime IS NOT NULL OR r.charged;
    v_waited bigint;
BEGIN
    j.deliveries := _with_end(j.deliveries, ROW(
        j.fence, j.attempt, j.session, j.claimed_at, v_at, r.outcome, p_kind IS NULL, p_cause, p_runtime, p_error)::ended);
    j.session := NULL;
    j.deadline := NULL;
    j.started := j.started OR v_ran;
    IF NOT r.charged THEN
        j.attempt := j.attempt - 1;
    ELSIF _is_crash(p_kind, r.charged) THEN
        j.crashes := j.crashes + 1;
    END IF;
    j.error := coalesce(p_error, j.error);
    IF v_ran THEN
        j.hold_key := NULL;
        j.hold_reason := NULL;
        j.held_since := NULL;
        j.held_times := NULL;
    END IF;
    IF p_unstarted THEN
        PERFORM _return_tokens(j.queue, j.lane, j.claimed_at);
    END IF;
    PERFORM _note_freed(ARRAY[j.queue]);
    IF r.state >= STATE_DONE THEN
        PERFORM _finish(j, STATE_RUNNING::smallint, r.move, r.state, r.reason, r.outcome, p_runtime);
        RETURN;
    END IF;
    v_waited := greatest(0, j.claimed_at - j.due_at);
    IF NOT r.keeps_place THEN
        j.due_at := v_at + r.delay;
    END IF;
    j.state := r.state;
    j.reason := NULL;
    PERFORM _transition(j, STATE_RUNNING::smallint, r.state, r.move, NULL, r.outcome, p_runtime, v_waited);
    IF r.state = STATE_SCHEDULED THEN
        PERFORM _schedule(j);
        PERFORM _refresh(j.queue, j.lane);
    ELSE
        PERFORM _file(j, r.keeps_place);
    END IF;
END $$;

-- Bring a job to a terminal state: its place, its key, its line, its memos, and word to its dependents.
CREATE OR REPLACE FUNCTION _finish(
    j job, p_before smallint, p_move text, p_state smallint, p_reason text, p_outcome text DEFAULT NULL,
    p_runtime bigint DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    j.state := p_state;
    j.reason := p_reason;
    PERFORM _transition(j, p_before, p_state, p_move, p_reason, p_outcome, p_runtime,
        CASE WHEN p_before = STATE_RUNNING THEN greatest(0, j.claimed_at - j.due_at) END);
    j.finished_at := _at();
    j.cancel_requested := false;
    IF j.line IS NOT NULL THEN
        PERFORM _note_freed(ARRAY[j.queue]);   -- the next of its line may go
        j.line := NULL;
    END IF;
    j.kept := CASE WHEN p_state = STATE_DEAD THEN KEPT_DEAD WHEN j.result IS NULL THEN KEPT_PLAIN ELSE KEPT_WITH_RESULT END;
    IF j.has_memos THEN
        DELETE FROM memo WHERE n = j.n;
        j.has_memos := false;
    END IF;
    IF j.waiting_for > 0 THEN
        UPDATE edge SET open = false WHERE child = j.n AND open;
        j.waiting_for := 0;
    END IF;
    PERFORM _put(j);
    PERFORM _refresh(j.queue, j.lane);
    IF j.key IS NOT NULL THEN
        PERFORM _release_key(j);
    END IF;
    IF j.has_children THEN
        PERFORM _tell(j.id, p_state);
    END IF;
END $$;

-- Let go of the key of a finished job: to the follower, or once the window is over.
CREATE OR REPLACE FUNCTION _release_key(j job) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    k unique_key;
    f job;
BEGIN
    SELECT * INTO k FROM unique_key u
    WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key;
    IF NOT FOUND OR j.finished_at IS NULL THEN
        RETURN;
    END IF;
    IF k.follower = j.id THEN
        UPDATE unique_key u SET follower = NULL
        WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key;
    ELSIF k.holder = j.id AND k.follower IS NOT NULL THEN
        SELECT * INTO f FROM job WHERE id = k.follower;
        UPDATE unique_key u
        SET holder = f.id, follower = NULL, mode = f.mode, win = f.win, accepted_at = f.accepted_at, until = NULL
        WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key;
        f.waiting_for := f.waiting_for - 1;
        PERFORM _unblock(f);
    ELSIF k.holder = j.id THEN
        k.until := _held_until(k.mode, k.win, k.accepted_at, j.finished_at);
        IF k.until <= _at() THEN
            DELETE FROM unique_key u
            WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key;
        ELSE
            UPDATE unique_key u SET until = k.until
            WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key;
        END IF;
    END IF;
END $$;

-- A job's last parent is out of its way.
CREATE OR REPLACE FUNCTION _unblock(j job) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _make_waiting(_line_up(j), STATE_BLOCKED::smallint, 'unblock');
END $$;

-- Whether the result of a finished job is still to be kept.
CREATE OR REPLACE FUNCTION _keeps_result(j job) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN j.result IS NOT NULL
       AND j.finished_at + (SELECT result_ttl FROM queue WHERE name = j.queue) > _at();
END $$;

-- A finished job of which nothing is to be kept goes at once.
CREATE OR REPLACE FUNCTION _drop_if_unkept(p_n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    j job;
BEGIN
    SELECT * INTO j FROM job WHERE n = p_n AND state IN (STATE_DONE, STATE_CANCELLED) AND pruned_until IS NULL;
    IF FOUND AND (SELECT retention FROM queue WHERE name = j.queue) = 0 AND NOT _keeps_result(j) AND NOT _is_needed(j) THEN
        PERFORM _drop(j, 'prune');
    END IF;
END $$;

-- The last end of a job, for who settles it again: without what went wrong, which may tell of a person.
CREATE OR REPLACE FUNCTION _bare_end(p_ends ended[]) RETURNS ended[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    e ended := p_ends[cardinality(p_ends)];
BEGIN
    e.cause := NULL;
    e.error := NULL;
    RETURN CASE WHEN cardinality(p_ends) > 0 THEN ARRAY[e] END;
END $$;

-- Remove a finished job. How it ended is remembered for the resend window; a dead one's edges act.
CREATE OR REPLACE FUNCTION _drop(j job, p_move text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_until bigint := j.finished_at + (SELECT resend_window FROM meta);
BEGIN
    PERFORM _transition(j, j.state, NULL, p_move);
    PERFORM _count_bytes(j, -j.size);
    IF j.has_children THEN
        DELETE FROM edge WHERE parent = j.id AND NOT open;
    END IF;
    IF v_until > _at() THEN
        IF j.log_lines > 0 THEN
            DELETE FROM log WHERE n = j.n;
        END IF;
        UPDATE job SET pruned_until = v_until, timer = v_until, kept = NULL, size = 0, payload = '', headers = NULL, tags = NULL,
            result = NULL, error = NULL, message = NULL, key = NULL, hold_reason = NULL, deliveries = _bare_end(deliveries)
        WHERE n = j.n;
    ELSE
        PERFORM _remove(j.n);
    END IF;
    IF j.state = STATE_DEAD THEN
        PERFORM _tell(j.id, STATE_CANCELLED::smallint);
    END IF;
END $$;

-- Remove every trace of a job but the edges to it.
CREATE OR REPLACE FUNCTION _remove(p_n bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM log WHERE n = p_n;
    DELETE FROM memo WHERE n = p_n;
    DELETE FROM edge WHERE child = p_n;
    DELETE FROM job WHERE n = p_n;
END $$;

-- Cancel a job that waits.
CREATE OR REPLACE FUNCTION _cancel_waiting(j job, p_move text, p_reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _finish(j, j.state, p_move, STATE_CANCELLED::smallint, p_reason);
    PERFORM _drop_if_unkept(j.n);
END $$;

-- A waiting job was not started in time.
CREATE OR REPLACE FUNCTION _expire(j job) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM _finish(j, j.state, 'expire', STATE_DEAD::smallint, 'expired before its first start');
END $$;
