-- Sessions: beats, and what becomes of the leases of a session that ends.
--
-- Keys touched: session, and the leases' jobs. Cost: a row per session; an end returns at most 1,000 leases a call.

-- in: beats as arrays; info is NULL in a plain beat, queues a JSON list. out: one row a beat, in order. Takes no lock of
-- the namespace, so that a worker's sign of life is never late.
CREATE OR REPLACE FUNCTION beat(
    p_now bigint, p_sessions text[], p_infos bytea[], p_ttls bigint[], p_queues text[], p_memory bigint[],
    OUT alive boolean, OUT jobs uuid[], OUT fences bigint[], OUT settings bigint
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    m meta;
    v_seen bigint;
BEGIN
    PERFORM _begin(p_now);
    SELECT * INTO m FROM meta;
    v_seen := m.live + _liveness_move(_at() - m.swept_at, m.session_ttl);
    settings := m.version;
    FOR v_i IN 1 .. cardinality(p_sessions) LOOP
        IF p_infos[v_i] IS NOT NULL THEN
            INSERT INTO session (id, info, ttl, queues, opened_at, seen)
            VALUES (p_sessions[v_i], p_infos[v_i], p_ttls[v_i],
                array(SELECT jsonb_array_elements_text(p_queues[v_i]::jsonb)), _at(), v_seen)
            ON CONFLICT (id) DO NOTHING;
        END IF;
        UPDATE session SET seen = greatest(seen, v_seen), memory = p_memory[v_i]
        WHERE id = p_sessions[v_i] AND ended_at IS NULL;
        alive := FOUND;
        jobs := NULL;
        fences := NULL;
        IF alive THEN
            SELECT array_agg(f.id ORDER BY f.lease), array_agg(f.fence ORDER BY f.lease) INTO jobs, fences
            FROM (SELECT j.id, _new_fence(j.fence, l.at) AS fence, l.i AS lease FROM lease l CROSS JOIN LATERAL (SELECT * FROM job WHERE n = l.n OFFSET 0) j
                  WHERE l.session = p_sessions[v_i] AND l.flagged
                  ORDER BY l.i LIMIT 1000) f;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- End a session: from here on its messages are refused, also about leases that are not returned yet. The first cause counts.
CREATE OR REPLACE FUNCTION _mark_ended(p_session text, p_cause bytea, p_kind text, p_started uuid[], p_fences bigint[])
RETURNS void LANGUAGE sql AS $$
    UPDATE session SET ended_at = _at(), cause = p_cause, cause_kind = p_kind, started = p_started, fences = p_fences,
        silent_for = greatest(0, (SELECT live FROM meta) - seen)
    WHERE id = p_session AND ended_at IS NULL
$$;

CREATE OR REPLACE FUNCTION _has_leases(p_session text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM lease WHERE session = p_session);
END $$;

-- Give back leases of an ended session, charged by what is known. out: how many. Needs the namespace to itself.
CREATE OR REPLACE FUNCTION _return_leases(p_session text, p_limit bigint) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    s session;
    j job;
    v_n bigint;
    v_count integer := 0;
    v_started boolean;
BEGIN
    SELECT * INTO s FROM session WHERE id = p_session;
    -- A lease that is locked is being settled in a caller's own transaction: it stays until that has ended.
    FOR v_n IN
        SELECT o.n FROM lease l CROSS JOIN LATERAL (SELECT n FROM job WHERE n BETWEEN l.n AND l.n + l.width - 1 AND state = STATE_READY OFFSET 0) o
        WHERE l.session = p_session ORDER BY l.i, o.n LIMIT p_limit
    LOOP
        SELECT * INTO j FROM job WHERE n = v_n FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        CONTINUE WHEN _was_settled_here(j.id);
        j := _as_leased(j);
        v_started := EXISTS (SELECT FROM unnest(s.started, s.fences) u (id, fence) WHERE u.id = j.id AND u.fence = j.fence);
        PERFORM _end_lease(j, _rule_session_end(_facts(j), s.cause_kind, v_started), s.cause_kind <> 'lost' AND NOT v_started,
            s.cause, s.cause_kind);
        PERFORM _drop_if_unkept(v_n);
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END $$;

-- Take out the transitions that were collected, in order.
CREATE OR REPLACE FUNCTION _take_moved() RETURNS SETOF moved LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM moved WHERE i > (SELECT cleared FROM meta) RETURNING *) SELECT * FROM gone ORDER BY i
$$;

-- in: a session, its cause, what had started. out: the head (no job), then every transition of the step.
CREATE OR REPLACE FUNCTION end_session(
    p_now bigint, p_session text, p_cause bytea, p_kind text, p_started uuid[], p_fences bigint[], p_limit integer,
    OUT known boolean, OUT more boolean, OUT job uuid, OUT queue text, OUT task text, OUT lane text, OUT move text,
    OUT before smallint, OUT after smallint, OUT reason text
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM _begin_exclusive(p_now);
    known := EXISTS (SELECT FROM session WHERE id = p_session);
    more := false;
    IF known THEN
        PERFORM _mark_ended(p_session, p_cause, p_kind, p_started, p_fences);
        PERFORM set_config('windlass.recording', 'on', true);
        more := _return_leases(p_session, p_limit) = p_limit AND _has_leases(p_session);
    END IF;
    RETURN NEXT;
    RETURN QUERY SELECT NULL::boolean, NULL::boolean, m.job, m.queue, m.task, m.lane, m.move, m.before, m.after, m.reason
                 FROM _take_moved() m;
    PERFORM _ring();
END $$;
