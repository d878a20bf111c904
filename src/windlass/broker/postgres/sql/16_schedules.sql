-- Schedules: documents with a next time, fired by compare-and-set.
--
-- Keys touched: schedule, meta (the version), and those of enqueue. Cost: one row, and the jobs of a tick.

CREATE OR REPLACE FUNCTION declare_schedule(
    p_now bigint, p_name text, p_spec bytea, p_next_at bigint, p_app text, p_revision bigint, OUT change text, OUT version bigint
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    s schedule;
BEGIN
    PERFORM _begin_exclusive(p_now);
    SELECT * INTO s FROM schedule WHERE name = p_name;
    version := coalesce(s.version, 0);
    IF s.declared IS NOT NULL AND s.app <> p_app THEN
        change := 'other app';
    ELSIF s.declared IS NOT NULL AND s.revision > p_revision THEN
        change := 'newer revision';
    ELSIF s.declared = p_spec THEN
        change := 'unchanged';
        UPDATE schedule SET revision = p_revision WHERE name = p_name;
    ELSE
        change := 'applied';
        INSERT INTO schedule (name) VALUES (p_name) ON CONFLICT DO NOTHING;
        UPDATE schedule SET declared = p_spec, app = p_app, revision = p_revision WHERE name = p_name;
        IF s.override IS NULL THEN
            version := _new_version();
            UPDATE schedule o SET next_at = p_next_at, version = declare_schedule.version WHERE o.name = p_name;
        END IF;
    END IF;
    PERFORM _ring();
END $$;

CREATE OR REPLACE FUNCTION override_schedule(
    p_now bigint, p_name text, p_spec bytea, p_next_at bigint, p_expect bigint, OUT change text, OUT version bigint
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    s schedule;
BEGIN
    PERFORM _begin_exclusive(p_now);
    SELECT * INTO s FROM schedule WHERE name = p_name;
    version := coalesce(s.version, 0);
    IF version <> p_expect THEN
        change := 'conflict';
    ELSIF s.override IS NOT DISTINCT FROM p_spec THEN
        change := 'unchanged';
    ELSE
        change := 'applied';
        version := _new_version();
        INSERT INTO schedule (name) VALUES (p_name) ON CONFLICT DO NOTHING;
        UPDATE schedule o SET override = p_spec, next_at = p_next_at, version = override_schedule.version WHERE o.name = p_name;
        DELETE FROM schedule WHERE name = p_name AND declared IS NULL AND override IS NULL;
    END IF;
    PERFORM _ring();
END $$;

CREATE OR REPLACE FUNCTION delete_schedule(p_name text) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM schedule WHERE name = p_name;
    RETURN FOUND;
END $$;

CREATE OR REPLACE FUNCTION pause_schedule(p_name text, p_paused boolean) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE schedule SET paused = p_paused WHERE name = p_name;
    RETURN FOUND;
END $$;

-- Whether a job of these fires could have started by now, and never has.
CREATE OR REPLACE FUNCTION _waits_to_start(p_fires jsonb) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_ids uuid[] := array(SELECT id::uuid FROM jsonb_array_elements(p_fires) f CROSS JOIN jsonb_array_elements_text(f -> 'jobs') id);
BEGIN
    RETURN EXISTS (
        SELECT FROM job o CROSS JOIN LATERAL _as_leased(o) j
        WHERE o.id = ANY (v_ids) AND j.state <= STATE_READY AND NOT j.started AND (j.due_at <= _at() OR j.hold_key IS NOT NULL));
END $$;

-- The latest fires with one more. A run of fires without a job is one record.
CREATE OR REPLACE FUNCTION _with_fire(p_fires jsonb, p_tick bigint, p_jobs jsonb, p_missed integer, p_kept integer) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_last jsonb := p_fires -> -1;
BEGIN
    IF v_last -> 'jobs' = '[]' AND p_jobs = '[]' THEN
        p_tick := v_last -> 'tick';
        p_missed := p_missed + coalesce((v_last -> 'missed')::integer, 0);
        p_fires := p_fires - -1;
    ELSIF jsonb_array_length(p_fires) >= p_kept THEN
        p_fires := p_fires - 0;
    END IF;
    RETURN p_fires || jsonb_build_object('tick', p_tick, 'at', _at(), 'jobs', p_jobs, 'missed', p_missed);
END $$;

-- Move `next_at` and enqueue the jobs of the tick, or do nothing. out: the head (its status, no place), then the receipts.
CREATE OR REPLACE FUNCTION fire(
    p_now bigint, p_name text, p_version bigint, p_expect bigint, p_then bigint, p_ticks integer, p_unless_waiting boolean,
    p_kept integer, p_too_large boolean,
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[]
) RETURNS SETOF receipt LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    s schedule;
    v_status text;
    v_receipts receipt[] := '{}';
    v_jobs jsonb := '[]';
BEGIN
    PERFORM _begin_exclusive(p_now);
    SELECT * INTO s FROM schedule WHERE name = p_name;
    IF NOT FOUND THEN
        v_status := 'unknown';
    ELSIF s.paused THEN
        v_status := 'paused';
    ELSIF s.version <> p_version OR s.next_at IS DISTINCT FROM p_expect THEN
        v_status := 'raced';
    ELSIF p_expect > _at() THEN
        v_status := 'not due';
    ELSIF p_unless_waiting AND _waits_to_start(s.fires) THEN
        v_status := 'missed';
    ELSIF p_too_large THEN
        v_status := 'refused';
    ELSE
        v_receipts := array(SELECT r FROM _enqueue_group(_asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys,
            p_modes, p_wins, p_delays, p_run_at, p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions,
            p_flows, p_edge_of, p_edge_parents, p_edge_on)) r);
        v_status := 'fired';
        IF EXISTS (SELECT FROM unnest(v_receipts) r WHERE r.status = 'refused') THEN
            v_status := 'refused';
        ELSE
            SELECT coalesce(jsonb_agg(coalesce(r.of, p_ids[r.i]) ORDER BY r.i), '[]') INTO v_jobs FROM unnest(v_receipts) r;
        END IF;
    END IF;
    IF v_status IN ('fired', 'missed') THEN
        UPDATE schedule SET next_at = p_then, fires = _with_fire(s.fires, p_expect, v_jobs, p_ticks - jsonb_array_length(v_jobs), p_kept)
        WHERE name = p_name;
    END IF;
    RETURN NEXT ROW(NULL, v_status, NULL, NULL, NULL)::receipt;
    RETURN QUERY SELECT * FROM unnest(v_receipts);
    PERFORM _ring();
END $$;

-- Schedules by name, and in the first row (no name) the store's time.
CREATE OR REPLACE FUNCTION schedules(
    p_now bigint, p_after text, p_limit integer, OUT now bigint, OUT name text, OUT declared bytea, OUT override bytea,
    OUT app text, OUT revision bigint, OUT version bigint, OUT next_at bigint, OUT paused boolean, OUT fires text
) RETURNS SETOF record LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT _seen_at(p_now), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    UNION ALL
    (SELECT NULL, s.name, s.declared, s.override, s.app, s.revision, s.version, s.next_at, s.paused, s.fires::text
     FROM schedule s WHERE s.name > p_after COLLATE "C" ORDER BY s.name LIMIT p_limit)
$$;
