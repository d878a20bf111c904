-- Rules: the decisions of `windlass.core`, written once for this store. Pure functions: nothing is read but what they are given, nothing is
-- written. `tests/broker/rules` feeds the same cases to these functions and to those of the core.
--
-- Words in capitals (STATE_READY, STRIDE …) are constants of the core, put in when the functions are installed (`constants.py`).

-- Fences and leases -----------------------------------------------------------------------------------------------------------------------------

-- The fence of a new lease: above every fence that the job ever had, and no less than the time.
CREATE OR REPLACE FUNCTION _new_fence(p_last bigint, p_at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(p_last + 1, p_at)
$$;

-- Whether this is the live lease of a job: the fence check on which everything rests.
CREATE OR REPLACE FUNCTION _is_live(p_leased boolean, p_fence bigint, p_message bigint, p_holder_lives boolean) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_leased AND p_fence = p_message AND p_holder_lives
$$;

-- How many leases an answer may have with such a job as its last: jobs that must not wait in a worker's hand go to free slots only. in: the ask (whether it
-- is for suspects, its slots, soon and size); whether the job's next attempt is the last, a run of its task was timed, and a limit counts it.
CREATE OR REPLACE FUNCTION _room_for(
    p_suspects boolean, p_slots integer, p_soon integer, p_size integer, p_last boolean, p_timed boolean, p_limited boolean
) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_suspects THEN least(1, p_slots)
        WHEN p_last OR NOT p_timed THEN p_slots
        WHEN p_limited THEN greatest(p_slots, p_soon) ELSE p_size END
$$;

-- How an ask is answered: by its session, its number, and that of the last one that was answered. A number beyond the next one: this database has
-- forgotten an answer, and with it whom its leases belong to.
CREATE OR REPLACE FUNCTION _rule_ask(p_alive boolean, p_seq bigint, p_answered bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN NOT p_alive OR p_seq > p_answered + 1 THEN 'lost' WHEN p_seq < p_answered THEN 'outdated' ELSE 'alive' END
$$;

-- Rulings (`windlass.core.settlement`) ---------------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _ruling(
    p_outcome text, p_move text, p_state integer, p_reason text DEFAULT NULL, p_delay bigint DEFAULT 0, p_charged boolean DEFAULT true,
    p_keeps_place boolean DEFAULT false
) RETURNS ruling LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(p_outcome, p_move, p_state, p_reason, p_delay, p_charged, p_keeps_place)::ruling
$$;

-- With the flag set, or a newer call waiting, every end but done is `cancelled`; NULL if neither is so.
CREATE OR REPLACE FUNCTION _rule_cancelled(s job_facts) RETURNS ruling LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN s.cancel_requested THEN _ruling('cancelled', 'cancel', STATE_CANCELLED, 'cancelled on request')
        WHEN s.superseded THEN _ruling('cancelled', 'supersede', STATE_CANCELLED, 'superseded') END
$$;

CREATE OR REPLACE FUNCTION _hold_delay(p_holds integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(HOLD_CAP, HOLD_FIRST << least(p_holds, 16))
$$;

-- How long a job waits after so many crashes.
CREATE OR REPLACE FUNCTION _crash_delay(p_crashes integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_crashes <= 1 THEN 0 ELSE least(CRASH_CAP, CRASH_FIRST << least(p_crashes - 2, 16)) END
$$;

-- What a settlement leads to.
CREATE OR REPLACE FUNCTION _rule_settlement(s job_facts, p_outcome text, p_delay bigint) RETURNS ruling LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_outcome = 'done' THEN
        RETURN _ruling('done', 'done', STATE_DONE);
    ELSIF s.cancel_requested OR s.superseded THEN
        RETURN _rule_cancelled(s);
    ELSIF p_outcome = 'cancelled' THEN
        RETURN _ruling('cancelled', 'cancel', STATE_CANCELLED, 'cancelled on request');
    ELSIF p_outcome = 'dead' THEN
        RETURN _ruling('dead', 'dead', STATE_DEAD, 'gave up');
    ELSIF p_outcome = 'retry' AND s.attempt >= s.max_attempts THEN
        RETURN _ruling('dead', 'retry', STATE_DEAD, 'attempts exhausted');
    ELSIF p_outcome IN ('retry', 'snooze') THEN
        RETURN _ruling(p_outcome, p_outcome, CASE WHEN p_delay > 0 THEN STATE_SCHEDULED ELSE STATE_READY END,
            p_delay => greatest(0, p_delay), p_charged => p_outcome = 'retry');
    ELSIF p_outcome = 'hold' AND s.held_for >= HOLD_LIMIT THEN
        -- Nothing ran, so the attempt is given back: a replay shows the count of real runs.
        RETURN _ruling('dead', 'hold', STATE_DEAD, 'held too long', p_charged => false);
    ELSIF p_outcome = 'hold' THEN
        RETURN _ruling('hold', 'hold', STATE_SCHEDULED, p_delay => _hold_delay(s.holds), p_charged => false);
    END IF;
    RETURN _ruling('release', 'release', STATE_READY, p_charged => false, p_keeps_place => true);
END $$;

-- What becomes of a lease whose session ended.
CREATE OR REPLACE FUNCTION _rule_session_end(s job_facts, p_kind text, p_started boolean) RETURNS ruling LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_move text := CASE p_kind WHEN 'crash' THEN 'crash' ELSE 'lost' END;
BEGIN
    IF s.cancel_requested OR s.superseded THEN
        RETURN _rule_cancelled(s);
    ELSIF p_kind = 'stop' OR (p_kind = 'crash' AND NOT p_started) THEN
        RETURN _ruling('release', 'release', STATE_READY, p_charged => false, p_keeps_place => true);
    ELSIF s.attempt >= s.max_attempts THEN
        RETURN _ruling('dead', v_move, STATE_DEAD, CASE v_move WHEN 'crash' THEN 'crashed its worker' ELSE 'worker lost' END);
    ELSIF _crash_delay(s.crashes + 1) = 0 THEN
        RETURN _ruling('retry', v_move, STATE_READY, p_keeps_place => true);
    END IF;
    RETURN _ruling('retry', v_move, STATE_SCHEDULED, p_delay => _crash_delay(s.crashes + 1));
END $$;

-- What becomes of a deadline lease that ran out: charged, but not a crash.
CREATE OR REPLACE FUNCTION _rule_deadline(s job_facts) RETURNS ruling LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF s.cancel_requested OR s.superseded THEN
        RETURN _rule_cancelled(s);
    ELSIF s.attempt >= s.max_attempts THEN
        RETURN _ruling('dead', 'deadline', STATE_DEAD, 'lease ran out');
    END IF;
    RETURN _ruling('retry', 'deadline', STATE_READY, p_keeps_place => true);
END $$;

-- Whether an end counts towards being a suspect.
CREATE OR REPLACE FUNCTION _is_crash(p_kind text, p_charged boolean) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_charged AND p_kind IN ('crash', 'lost')
$$;

-- When a job is due that is accepted now (`windlass.core.job`).
CREATE OR REPLACE FUNCTION _due_at(p_run_at bigint, p_delay bigint, p_at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_run_at IS NULL THEN p_at + p_delay ELSE greatest(p_at, p_run_at) END
$$;

-- Edges (`windlass.core.edge`): what the state of a parent does to a job that waits for it.
CREATE OR REPLACE FUNCTION _rule_edge(p_on_failure smallint, p_parent smallint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_parent = STATE_DONE THEN 'free'
        WHEN p_parent = STATE_CANCELLED THEN CASE p_on_failure WHEN ON_FAILURE_CANCEL THEN 'cancel' ELSE 'free' END
        WHEN p_parent = STATE_DEAD AND p_on_failure = ON_FAILURE_RUN THEN 'free'
        ELSE 'wait' END
$$;

-- Events (`windlass.core.event`): whether a queue logs a transition. in: STATE_UNPLACED before if it is not placed yet, NULL after if it is removed.
CREATE OR REPLACE FUNCTION _is_logged(p_emit smallint, p_before smallint, p_after smallint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_emit = EMIT_ALL OR (p_emit = EMIT_FINAL
        AND (p_before = STATE_RUNNING OR coalesce(p_after >= STATE_DONE AND p_before < STATE_DONE, false)))
$$;

-- Keys (`windlass.core.dedup`) -------------------------------------------------------------------------------------------------------------------------

-- What becomes of a call under a key. in: its mode, the state of the job that holds the key (NULL: there is none), whether the key's window lasts.
CREATE OR REPLACE FUNCTION _rule_key(p_mode smallint, p_holder smallint, p_within_window boolean) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_holder IS NULL THEN 'create'
        WHEN p_holder <= STATE_READY THEN CASE p_mode WHEN MODE_REPLACE THEN 'replace' ELSE 'duplicate' END
        WHEN p_holder = STATE_RUNNING THEN CASE p_mode WHEN MODE_REPLACE THEN 'follow' ELSE 'duplicate' END
        WHEN p_mode = MODE_REPLACE OR NOT p_within_window THEN 'create'
        ELSE 'duplicate' END
$$;

-- When the key of a finished job is free.
CREATE OR REPLACE FUNCTION _held_until(p_mode smallint, p_window bigint, p_accepted_at bigint, p_finished_at bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE p_mode WHEN MODE_THROTTLE THEN greatest(p_finished_at, p_accepted_at + p_window) ELSE p_finished_at + p_window END
$$;

-- Order (`windlass.core.order`) --------------------------------------------------------------------------------------------------------------------------

-- The band that a job is filed in: fixed when it is filed, never moved. Smaller numbers go first.
CREATE OR REPLACE FUNCTION _band(p_priority bigint, p_due bigint, p_bands bigint[], p_age_step bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN p_age_step IS NOT NULL THEN p_due / p_age_step - p_priority   -- times are not negative: as Python's floor division
        WHEN p_bands IS NOT NULL THEN
            -coalesce((SELECT max(b) FROM unnest(p_bands) b WHERE b <= p_priority), (SELECT min(b) FROM unnest(p_bands) b))
        ELSE -p_priority
    END
$$;

-- What a claim adds to a lane's clock.
CREATE OR REPLACE FUNCTION _stride(p_weight bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT STRIDE / p_weight $$;

-- How many jobs a lane hands out in a row to an ask.
CREATE OR REPLACE FUNCTION _turn_of(p_slots integer, p_soon integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT least(MAX_TURN, 1 + greatest(0, p_soon - p_slots) / TURN_STEP)
$$;

-- The number that decides between weighted bands for the job after so many of a claim.
CREATE OR REPLACE FUNCTION _next_draw(p_draw bigint, p_claimed integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT (p_draw + p_claimed * WEYL) % 4294967296
$$;

-- The band to take the next job from. in: the bands that have one to hand out, first to last; the listed priorities and their weights, or NULL.
CREATE OR REPLACE FUNCTION _choose_band(p_present bigint[], p_bands bigint[], p_shares bigint[], p_draw bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_band bigint;
    v_listed bigint;
    v_last bigint;
    v_firsts bigint[] := '{}';
    v_weights bigint[] := '{}';
    v_point bigint;
BEGIN
    IF p_bands IS NULL OR cardinality(p_present) <= 1 THEN
        RETURN p_present[1];
    END IF;
    -- Bands are in order, so those that count with one listed band are together.
    FOREACH v_band IN ARRAY p_present LOOP
        v_listed := _band(-v_band, 0, p_bands, NULL);
        CONTINUE WHEN v_listed = v_last;
        v_last := v_listed;
        v_firsts := v_firsts || v_band;
        v_weights := v_weights || p_shares[array_position(p_bands, -v_listed)];
    END LOOP;
    v_point := p_draw * (SELECT sum(w) FROM unnest(v_weights) w)::bigint / 4294967296;
    FOR v_i IN 1 .. cardinality(v_weights) LOOP
        IF v_point < v_weights[v_i] THEN
            RETURN v_firsts[v_i];
        END IF;
        v_point := v_point - v_weights[v_i];
    END LOOP;
    RETURN v_firsts[1];
END $$;

-- Token buckets (`windlass.core.limits`), in units of 1/per token ----------------------------------------------------------------------------------

-- The level of a bucket now. in: its level, time and period; the rate's count, period and size.
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

-- The level after one token was taken; of a bucket that was never used (NULL), after the first.
CREATE OR REPLACE FUNCTION _taken(
    p_level bigint, p_at bigint, p_per bigint, p_count bigint, p_new_per bigint, p_size bigint, p_now bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(_refilled(p_level, p_at, p_per, p_count, p_new_per, p_size, p_now), p_size * p_new_per) - p_new_per
$$;

-- The level after a token came back from work that never started: worth what its bucket has not gained since the claim.
CREATE OR REPLACE FUNCTION _returned(
    p_level bigint, p_at bigint, p_per bigint, p_count bigint, p_new_per bigint, p_size bigint, p_now bigint, p_claimed_at bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(p_size * p_new_per, _refilled(p_level, p_at, p_per, p_count, p_new_per, p_size, p_now)
        + CASE WHEN greatest(0, p_now - p_claimed_at) < (p_new_per + p_count - 1) / p_count
               THEN p_new_per - greatest(0, p_now - p_claimed_at) * p_count ELSE 0 END)
$$;

-- Time (`windlass.core.session`) ---------------------------------------------------------------------------------------------------------------------------

-- The time that a verb sees: never before the mark, which is the time of the last sweep. But a clock that was set back by more than a TTL is followed.
CREATE OR REPLACE FUNCTION _store_time(p_clock bigint, p_mark bigint, p_ttl bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_clock + p_ttl < p_mark THEN p_clock ELSE greatest(p_clock, p_mark) END
$$;

-- Whether a sweep comes too soon after the last one to do anything. in: how long ago that was (NULL: there was none).
CREATE OR REPLACE FUNCTION _is_early(p_elapsed bigint, p_every bigint, p_left_work boolean) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(p_elapsed >= 0 AND p_elapsed < p_every AND NOT p_left_work, false)
$$;

-- By how much a sweep moves the liveness clock. in: how long ago the last one was.
CREATE OR REPLACE FUNCTION _liveness_move(p_since bigint, p_ttl bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_since > greatest(LIVENESS_STEP, p_ttl / 5) THEN LIVENESS_STEP ELSE greatest(0, p_since) END
$$;

-- Offsets (`windlass.core.take`) --------------------------------------------------------------------------------------------------------------------------

-- Whether an offset may move. in: identity and offset of what is kept (NULL: nothing); the identity of the source and the offset that is expected.
CREATE OR REPLACE FUNCTION _rule_take(p_identity text, p_at text, p_source text, p_expect text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_at IS NOT NULL AND p_identity <> p_source THEN 'foreign'
        WHEN p_at IS NOT DISTINCT FROM p_expect THEN 'taken' ELSE 'raced' END
$$;
