-- The step: its time, its lock, its bounds.
--
-- A verb begins with `_begin`. What its inner functions need to know is kept in settings of the transaction:
-- windlass.at (the time), windlass.fan_out (dependents that may still be told), windlass.telling (whether an end is
-- put in line instead of being told at once), windlass.recording (whether transitions are collected in `moved`).
--
-- The lock: verbs that touch only plain jobs share it and rely on row locks; all others have it alone. So what is
-- written for one verb at a time is never interleaved, and the hot path waits for nobody but these. Who shares it and
-- touches lanes has a second one, of lanes, alone (`settle_done`).

-- in: the clock of a test, or NULL for the server's own. out: the row of `meta`. cost: one row.
CREATE OR REPLACE FUNCTION _begin(p_now bigint) RETURNS meta LANGUAGE plpgsql AS $$
DECLARE
    m meta;
    v_clock bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
BEGIN
    SELECT * INTO m FROM meta;
    IF v_clock + m.session_ttl >= m.mark THEN
        v_clock := greatest(v_clock, m.mark);
    END IF;
    PERFORM set_config('windlass.at', v_clock::text, true), set_config('windlass.fan_out', '100', true),
            set_config('windlass.telling', '', true), set_config('windlass.recording', '', true);
    RETURN m;
END $$;

-- The same, with the namespace to itself until the end of the transaction. What came by callers' own transactions is
-- taken in first.
CREATE OR REPLACE FUNCTION _begin_alone(p_now bigint) RETURNS meta LANGUAGE plpgsql AS $$
DECLARE
    m meta;
BEGIN
    PERFORM pg_advisory_xact_lock(1464422980, 'job'::regclass::oid::integer);
    m := _begin(p_now);
    IF EXISTS (SELECT FROM inbox) OR EXISTS (SELECT FROM aftermath) THEN
        PERFORM _take_in();
    END IF;
    RETURN m;
END $$;

-- The same, beside others that touch only plain jobs: nobody is told of an end there, and nothing is collected.
CREATE OR REPLACE FUNCTION _begin_beside(p_now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1464422980, 'job'::regclass::oid::integer);
    PERFORM set_config('windlass.at', _seen_at(p_now)::text, true), set_config('windlass.recording', '', true);
END $$;

-- Give up a step that turned out to need the namespace to itself: the caller begins it anew, alone. Rare: a pre-check
-- without the lock has chosen the wrong way, or a job has expired that others depend on.
CREATE OR REPLACE FUNCTION _must_be_alone() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'this step needs the namespace to itself' USING ERRCODE = 'WL001';
END $$;

-- Whether every one of these queues is plain: no lane, no limit, no sequence. It stays so while the lock is held.
CREATE OR REPLACE FUNCTION _are_plain(p_queues text[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM queue q
        WHERE q.name = ANY (p_queues)
          AND (q.laned OR NOT q.unlimited OR EXISTS (SELECT FROM lane l WHERE l.queue = q.name)));
END $$;

CREATE OR REPLACE FUNCTION _at() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT current_setting('windlass.at')::bigint
$$;

-- The time that a read sees: no lock, nothing is kept.
CREATE OR REPLACE FUNCTION _seen_at(p_now bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_clock bigint := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    v_mark bigint;
    v_ttl bigint;
BEGIN
    SELECT mark, session_ttl INTO v_mark, v_ttl FROM meta;
    RETURN CASE WHEN v_clock + v_ttl < v_mark THEN v_clock ELSE greatest(v_clock, v_mark) END;
END $$;

-- The liveness clock as of a time, where a sweep would move it; the rule is `liveness_move` in core/session.py.
CREATE OR REPLACE FUNCTION _liveness(m meta, p_at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT m.live + CASE
        WHEN m.swept_at IS NULL THEN 0
        WHEN p_at - m.swept_at > greatest(1000000, m.session_ttl / 5) THEN 1000000
        ELSE greatest(0, p_at - m.swept_at) END
$$;

-- A token bucket, in units of 1/per token (`windlass.core.limits`): its level now.
CREATE OR REPLACE FUNCTION _refilled(
    p_level bigint, p_at bigint, p_per bigint, p_count bigint, p_new_per bigint, p_size bigint, p_now bigint
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_capacity bigint := p_size * p_new_per;
    v_level bigint := least(
        CASE WHEN p_per = p_new_per THEN p_level ELSE least(p_level / p_per, p_size) * p_new_per END, v_capacity);
    v_missing bigint := v_capacity - v_level;
    v_elapsed bigint := greatest(0, p_now - p_at);
BEGIN
    -- Compared before multiplying: a year of elapsed time times the count would leave the range.
    RETURN v_level + CASE WHEN v_elapsed >= (v_missing + p_count - 1) / p_count THEN v_missing
                          ELSE v_elapsed * p_count END;
END $$;

-- How long until a token can be taken; 0 if now, if there is no rate, or if the bucket was never used.
CREATE OR REPLACE FUNCTION _token_in(
    p_level bigint, p_at bigint, p_per bigint, p_count bigint, p_new_per bigint, p_size bigint, p_now bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_count IS NULL OR p_level IS NULL THEN 0
        ELSE greatest(0, (p_new_per - _refilled(p_level, p_at, p_per, p_count, p_new_per, p_size, p_now)
                          + p_count - 1) / p_count)
    END
$$;
