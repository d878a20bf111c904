-- Settings: documents in two layers and the policies they amount to; schedules.
--
-- Keys touched: document, queue, lane, schedule, meta (the version of all settings). Cost: a few rows; a changed queue
-- looks at each of its lanes.

CREATE OR REPLACE FUNCTION _new_version() RETURNS bigint LANGUAGE sql AS $$
    UPDATE meta SET version = version + 1 RETURNING version
$$;

-- What both layers say together: the override wins field by field.
CREATE OR REPLACE FUNCTION _overlaid(p_declared bytea, p_override bytea) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(convert_from(p_declared, 'UTF8')::jsonb, '{}') || coalesce(convert_from(p_override, 'UTF8')::jsonb, '{}')
$$;

-- Whether two documents say the same. Queues and lanes are compared by meaning, everything else by its bytes.
CREATE OR REPLACE FUNCTION _same(p_kind text, a bytea, b bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN a IS NULL OR b IS NULL THEN a IS NULL AND b IS NULL
        WHEN p_kind IN ('queue', 'lane') THEN convert_from(a, 'UTF8')::jsonb = convert_from(b, 'UTF8')::jsonb
        ELSE a = b END
$$;

CREATE OR REPLACE FUNCTION _rate_size(r jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(r) = 'object' THEN coalesce((r ->> 'burst')::bigint,
        greatest(1, (r ->> 'count')::bigint * 1000000 / (10 * coalesce((r ->> 'per')::bigint, 1000000)))) END
$$;

CREATE OR REPLACE FUNCTION _rate_per(r jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(r) = 'object' THEN coalesce((r ->> 'per')::bigint, 1000000) END
$$;

-- The queue as its settings would have it; state and bucket are those of the row, if there is one.
CREATE OR REPLACE FUNCTION _policy(p_name text, p_said jsonb) RETURNS queue LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    m meta;
    s jsonb := p_said;
BEGIN
    SELECT * INTO m FROM meta;
    SELECT * INTO q FROM queue WHERE name = p_name;
    q.name := p_name;
    q.i := coalesce(q.i, _draw_numbers());
    q.laned := coalesce(q.laned, false);
    q.paused := coalesce(q.paused, false);
    q.concurrency := (s ->> 'concurrency')::bigint;
    q.rate_count := (s -> 'rate' ->> 'count')::bigint;
    q.rate_per := _rate_per(s -> 'rate');
    q.rate_size := _rate_size(s -> 'rate');
    q.lane_concurrency := (s ->> 'lane_concurrency')::bigint;
    q.lane_rate_count := (s -> 'lane_rate' ->> 'count')::bigint;
    q.lane_rate_per := _rate_per(s -> 'lane_rate');
    q.lane_rate_size := _rate_size(s -> 'lane_rate');
    q.age_step := (s ->> 'age_step')::bigint;
    q.sequence := coalesce((s ->> 'sequence')::boolean, false);
    q.one_ring := coalesce(s ->> 'order', 'band') = 'lane' OR q.age_step IS NOT NULL OR q.sequence;
    q.bands := NULL;
    q.shares := NULL;
    IF jsonb_typeof(s -> 'bands') = 'object' AND s -> 'bands' <> '{}' THEN
        SELECT array_agg(key::bigint ORDER BY key::bigint), array_agg(value::bigint ORDER BY key::bigint)
        INTO q.bands, q.shares FROM jsonb_each_text(s -> 'bands');
    END IF;
    q.emit := CASE s ->> 'emit' WHEN 'final' THEN EMIT_FINAL WHEN 'all' THEN EMIT_ALL ELSE EMIT_NONE END;
    q.retention := coalesce((s ->> 'retention')::bigint, m.retention);
    q.retention_count := CASE WHEN s ? 'retention_count' THEN (s ->> 'retention_count')::bigint ELSE m.retention_count END;
    q.result_ttl := coalesce((s ->> 'result_ttl')::bigint, m.result_ttl);
    q.dead_retention := coalesce((s ->> 'dead_retention')::bigint, m.dead_retention);
    q.unlimited := q.concurrency IS NULL AND q.rate_count IS NULL AND q.lane_concurrency IS NULL
        AND q.lane_rate_count IS NULL AND q.bands IS NULL AND NOT q.sequence;
    q.segment := _open_segment(_class(q));
    RETURN q;
END $$;

-- Why two layers cannot be in force together, if so.
CREATE OR REPLACE FUNCTION _refused_settings(d document) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    q queue;
    o queue;
BEGIN
    IF d.kind NOT IN ('queue', 'lane') THEN
        RETURN NULL;
    END IF;
    SELECT * INTO o FROM queue WHERE name = d.name;
    IF NOT FOUND THEN
        RETURN CASE WHEN d.kind = 'lane' THEN 'unknown queue' END;
    ELSIF d.kind = 'lane' THEN
        RETURN NULL;
    END IF;
    q := _policy(d.name, _overlaid(d.declared, d.override));
    IF (q.one_ring, q.sequence) = (o.one_ring, o.sequence) AND q.age_step IS NOT DISTINCT FROM o.age_step THEN
        RETURN NULL;
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM job WHERE queue = d.name AND waits IS NOT NULL)
        OR EXISTS (SELECT FROM ready WHERE queue = d.name) OR EXISTS (SELECT FROM lease WHERE queue = d.name) THEN 'in use' END;
END $$;

-- Put a changed document in force. out: its version.
CREATE OR REPLACE FUNCTION _apply(d document) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    d.version := _new_version();
    DELETE FROM document WHERE kind = d.kind AND name = d.name AND lane = d.lane;
    IF d.declared IS NOT NULL OR d.override IS NOT NULL THEN
        INSERT INTO document SELECT d.*;
    END IF;
    IF d.kind = 'queue' THEN
        PERFORM _apply_queue(d);
    ELSIF d.kind = 'lane' THEN
        PERFORM _apply_lane(d);
    END IF;
    RETURN d.version;
END $$;

CREATE OR REPLACE FUNCTION _apply_queue(d document) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    q queue := _policy(d.name, _overlaid(d.declared, d.override));
    o queue;
BEGIN
    SELECT * INTO o FROM queue WHERE name = d.name;
    IF FOUND AND ((q.one_ring, q.sequence) <> (o.one_ring, o.sequence) OR q.age_step IS DISTINCT FROM o.age_step) THEN
        -- Nothing is filed, so nobody loses a place; clocks of another layout mean nothing.
        DELETE FROM seat WHERE queue = d.name;
        DELETE FROM ring WHERE queue = d.name;
    END IF;
    DELETE FROM queue WHERE name = d.name;
    INSERT INTO queue SELECT q.*;
    PERFORM _refresh_all(d.name);
    PERFORM _note(d.name);   -- a limit may have been raised
    IF o.name IS NOT NULL AND q.retention_count < coalesce(o.retention_count, q.retention_count + 1) THEN
        UPDATE meta SET left_work = true;   -- the next pass counts its finished jobs
    END IF;
END $$;

CREATE OR REPLACE FUNCTION _apply_lane(d document) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    s jsonb := _overlaid(d.declared, d.override);
BEGIN
    -- First as it was until now: what waits keeps the place that it had before these settings.
    PERFORM _become_laned(d.name);
    INSERT INTO lane (queue, name) VALUES (d.name, d.lane) ON CONFLICT DO NOTHING;
    UPDATE lane SET weight = coalesce((s ->> 'weight')::bigint, 1), has_concurrency = s ? 'concurrency',
        concurrency = (s ->> 'concurrency')::bigint, has_rate = s ? 'rate', rate_count = (s -> 'rate' ->> 'count')::bigint,
        rate_per = _rate_per(s -> 'rate'), rate_size = _rate_size(s -> 'rate')
    WHERE queue = d.name AND name = d.lane;
    PERFORM _refresh(d.name, '');
    PERFORM _refresh(d.name, d.lane);
END $$;

-- in: documents as arrays. out: one row each, in order: what became of it, and the version that stands.
CREATE OR REPLACE FUNCTION declare(
    p_now bigint, p_kinds text[], p_names text[], p_lanes text[], p_bodies bytea[], p_apps text[], p_revisions bigint[],
    OUT change text, OUT version bigint
) RETURNS SETOF record LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    d document;
BEGIN
    PERFORM _begin_exclusive(p_now);
    FOR v_i IN 1 .. cardinality(p_kinds) LOOP
        d := _document(p_kinds[v_i], p_names[v_i], p_lanes[v_i]);
        version := d.version;
        IF d.declared IS NOT NULL AND d.app <> p_apps[v_i] THEN
            change := 'other app';
        ELSIF d.declared IS NOT NULL AND d.revision > p_revisions[v_i] THEN
            change := 'newer revision';
        ELSIF d.declared IS NOT NULL AND _same(d.kind, d.declared, p_bodies[v_i]) THEN
            change := 'unchanged';
            UPDATE document o SET revision = p_revisions[v_i] WHERE o.kind = d.kind AND o.name = d.name AND o.lane = d.lane;
        ELSE
            d.declared := p_bodies[v_i];
            d.app := p_apps[v_i];
            d.revision := p_revisions[v_i];
            change := _refused_settings(d);
            IF change IS NULL THEN
                change := 'applied';
                version := _apply(d);
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM _ring();
END $$;

-- A document, or the blank of one that does not exist.
CREATE OR REPLACE FUNCTION _document(p_kind text, p_name text, p_lane text) RETURNS document LANGUAGE plpgsql STABLE AS $$
DECLARE
    d document;
BEGIN
    SELECT * INTO d FROM document WHERE kind = p_kind AND name = p_name AND lane = p_lane;
    IF NOT FOUND THEN
        d := ROW(p_kind, p_name, p_lane, NULL, NULL, '', 0, 0)::document;
    END IF;
    RETURN d;
END $$;

-- Set or reset the operators' layer, if the version is the expected one.
CREATE OR REPLACE FUNCTION override(
    p_now bigint, p_kind text, p_name text, p_lane text, p_body bytea, p_expect bigint, OUT change text, OUT version bigint
) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    d document;
BEGIN
    PERFORM _begin_exclusive(p_now);
    d := _document(p_kind, p_name, p_lane);
    version := d.version;
    IF d.version <> p_expect THEN
        change := 'conflict';
    ELSIF _same(p_kind, d.override, p_body) THEN
        change := 'unchanged';
    ELSIF p_kind = 'queue' AND NOT EXISTS (SELECT FROM queue WHERE name = p_name) THEN
        change := 'unknown queue';
    ELSE
        d.override := p_body;
        change := _refused_settings(d);
        IF change IS NULL THEN
            change := 'applied';
            version := _apply(d);
        END IF;
    END IF;
    PERFORM _ring();
END $$;

-- Documents of a kind, by subject, from behind the one given.
CREATE OR REPLACE FUNCTION documents(p_kind text, p_name text, p_lane text, p_limit integer) RETURNS SETOF document
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT * FROM document WHERE kind = p_kind AND (p_name IS NULL OR (name, lane) > (p_name, p_lane))
    ORDER BY name, lane LIMIT p_limit
$$;

-- Write the options that this process has opened the namespace with: the newest counts.
CREATE OR REPLACE FUNCTION open_with(
    p_session_ttl bigint, p_resend_window bigint, p_retention bigint, p_retention_count bigint, p_result_ttl bigint,
    p_dead_retention bigint, p_events_kept bigint, p_max_size bigint
) RETURNS boolean LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE meta SET session_ttl = p_session_ttl, resend_window = p_resend_window, retention = p_retention,
        retention_count = p_retention_count, result_ttl = p_result_ttl, dead_retention = p_dead_retention,
        events_kept = p_events_kept, max_size = p_max_size
    WHERE (session_ttl, resend_window, retention, result_ttl, dead_retention, events_kept)
        <> (p_session_ttl, p_resend_window, p_retention, p_result_ttl, p_dead_retention, p_events_kept)
       OR retention_count IS DISTINCT FROM p_retention_count OR max_size IS DISTINCT FROM p_max_size;
    RETURN FOUND;
END $$;
