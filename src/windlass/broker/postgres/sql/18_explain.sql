-- Why a job is not running: the first reason that applies. Cost: its parents, or at most 1,000 jobs counted.

CREATE OR REPLACE FUNCTION explain(
    p_insists boolean, p_now bigint, p_job uuid, p_ahead integer,
    OUT state smallint, OUT why text, OUT detail text, OUT ahead bigint, OUT next_in bigint, OUT error bytea,
    OUT hold_reason bytea
) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    j job;
    q queue;
    v_at bigint := _seen_at(p_now);
BEGIN
    PERFORM _sees_all(p_insists);
    detail := '';
    ahead := 0;
    j := _load(p_job);
    IF j.n IS NULL OR j.pruned_until IS NOT NULL THEN
        why := 'no such job';
        RETURN;
    END IF;
    state := j.state;
    IF j.state >= STATE_DONE THEN
        why := 'it has finished';
        detail := coalesce(j.reason, '');
        error := j.error;
    ELSIF j.state = STATE_RUNNING THEN
        why := 'it is running';
        detail := coalesce(j.session, '');
    ELSIF j.state = STATE_BLOCKED THEN
        IF _has_dead_parent(j) THEN
            why := 'a parent is dead: replay or discard it';
        ELSIF EXISTS (SELECT FROM edge WHERE child = j.n AND open) THEN
            why := 'its parents are not done';
            detail := (SELECT string_agg(p.parent::text, ', ' ORDER BY p.parent)
                       FROM (SELECT parent FROM edge WHERE child = j.n AND open ORDER BY parent LIMIT 3) p);
        ELSE
            why := 'the job before it under its key is running';
            detail := (SELECT holder FROM unique_key u WHERE u.queue = j.queue AND u.lane = j.lane AND u.task = j.task AND u.key = j.key);
        END IF;
    ELSIF j.state = STATE_SCHEDULED THEN
        next_in := greatest(0, j.due_at - v_at);
        IF j.hold_key IS NOT NULL THEN
            why := 'no worker can run it';
            hold_reason := j.hold_reason;
        ELSIF j.attempt > 0 THEN
            why := 'it failed and waits for its next attempt';
            error := j.error;
        ELSE
            why := 'it is not due';
        END IF;
    ELSE
        SELECT * INTO q FROM queue WHERE name = j.queue;
        ahead := _ahead(q, j, p_ahead);
        SELECT r.why, r.detail, r.next_in INTO why, detail, next_in FROM _explain_ready(q, j, ahead, v_at) r;
    END IF;
END $$;

-- Ready jobs of its lane that go first.
CREATE OR REPLACE FUNCTION _ahead(q queue, j job, p_limit integer) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF j.crashes >= SUSPECT_AFTER THEN
        RETURN (SELECT count(*) FROM (SELECT FROM ready WHERE queue = q.name AND lane = j.lane AND suspect
                AND seq < j.seq LIMIT p_limit) a);
    ELSIF q.sequence THEN
        RETURN (SELECT count(*) FROM (SELECT FROM ready WHERE queue = q.name AND lane = j.lane AND seq < j.seq LIMIT p_limit) a);
    END IF;
    RETURN (SELECT least(p_limit, coalesce(sum(a.jobs), 0)) FROM (
        SELECT CASE WHEN j.n BETWEEN n AND n + width - 1 THEN j.n - n ELSE width END AS jobs FROM ready
        WHERE queue = q.name AND lane = j.lane AND NOT suspect AND (band, seq) < (j.band, j.seq) ORDER BY band, seq LIMIT p_limit) a);
END $$;

CREATE OR REPLACE FUNCTION _explain_ready(
    q queue, j job, p_ahead bigint, p_at bigint, OUT why text, OUT detail text, OUT next_in bigint
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    l lane := _lane(q, j.lane);
    v_head bigint := CASE WHEN q.sequence THEN _head_of_line(q.name, j.lane) END;
    v_parked text := _parked(l, p_at);
    v_token bigint := _queue_token_in(q, p_at);
BEGIN
    detail := '';
    IF q.paused THEN
        why := 'its queue is paused';
    ELSIF l.paused THEN
        why := 'its lane is paused';
    ELSIF v_head <> j.n THEN
        why := 'an earlier job of its lane is not finished';
        detail := (SELECT id FROM job WHERE n = v_head);
    ELSIF _leases_left(q) <= 0 THEN
        why := 'its queue is at its concurrency limit';
    ELSIF v_token > 0 THEN
        why := 'its queue is at its rate';
        next_in := v_token;
    ELSIF v_parked = 'concurrency' THEN
        why := 'its lane is at its concurrency limit';
    ELSIF v_parked = 'rate' THEN
        why := 'its lane is at its rate';
        next_in := _lane_token_in(l, p_at);
    ELSIF NOT EXISTS (SELECT FROM session WHERE ended_at IS NULL AND q.name = ANY (queues)) THEN
        why := 'no live worker serves its queue';
    ELSIF j.crashes >= SUSPECT_AFTER THEN
        why := 'it crashed its workers and waits to run alone';
    ELSIF p_ahead > 0 THEN
        why := 'jobs ahead of it in its lane go first';
    ELSE
        why := 'it is first in its lane';
    END IF;
END $$;
