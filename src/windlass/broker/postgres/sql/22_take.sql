-- The verbs of intakes: an offset moves together with the jobs that come of it.
--
-- Keys touched: source_offset; those of `enqueue`. The row of an offset is locked behind that of the namespace, which plain takes share: so takes of one
-- source wait for each other, and takes of others do not. A step that is begun anew has let go of the row before.

-- Move an offset and enqueue the jobs of what lies between, or do nothing. in: the source and its identity; the offset that is expected and the next one
-- (NULL: none); errors of jobs that are born dead, in the places of the jobs (NULL: there are none); jobs as `enqueue` is given them, all one group.
-- out: the head (a status and the offset that stands, no place), then receipts; none if every job was created, or nothing was taken. Cost: as `enqueue`.
CREATE OR REPLACE FUNCTION take(
    p_now bigint, p_source text, p_identity text, p_expect text, p_then text, p_dead bytea[],
    p_ids uuid[], p_tasks text[], p_queues text[], p_lanes text[], p_priorities smallint[], p_keys text[], p_modes smallint[],
    p_wins bigint[], p_delays bigint[], p_run_at bigint[], p_expires bigint[], p_payloads bytea[], p_headers bytea[],
    p_tags bytea[], p_max_attempts integer[], p_revisions bigint[], p_flows text[], p_edge_of integer[],
    p_edge_parents uuid[], p_edge_on smallint[]
) RETURNS SETOF taken LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    v_many boolean := p_keys IS NULL AND p_edge_of IS NULL AND p_dead IS NULL;
    v_exclusive boolean := NOT v_many OR p_lanes <> '{""}';
    v_receipts receipt[];
    v_status text;
    o source_offset;
BEGIN
    LOOP   -- at most twice
        BEGIN
            IF v_exclusive THEN
                PERFORM _begin_exclusive(p_now);
            ELSE
                PERFORM _begin_shared(p_now);
            END IF;
            SELECT * INTO o FROM source_offset WHERE source = p_source FOR UPDATE;
            v_status := _rule_take(o.identity, o.at, p_identity, p_expect);
            EXIT WHEN v_status <> 'taken';
            IF cardinality(p_ids) = 0 THEN
                NULL;
            ELSIF v_many THEN
                PERFORM _accept_many(v_exclusive, p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_delays, p_run_at, p_expires, p_payloads,
                    p_headers, p_tags, p_max_attempts, p_revisions, p_flows);
            ELSE
                v_receipts := array(SELECT r FROM _enqueue_group(_asked(p_ids, p_tasks, p_queues, p_lanes, p_priorities, p_keys, p_modes,
                    p_wins, p_delays, p_run_at, p_expires, p_payloads, p_headers, p_tags, p_max_attempts, p_revisions, p_flows, p_edge_of,
                    p_edge_parents, p_edge_on, p_dead)) r);
                IF EXISTS (SELECT FROM unnest(v_receipts) r WHERE r.status = 'refused') THEN
                    v_status := 'refused';
                    EXIT;
                END IF;
            END IF;
            PERFORM _move_offset(p_source, p_identity, p_expect, p_then);
            EXIT;
        EXCEPTION WHEN SQLSTATE 'WL001' OR unique_violation THEN   -- the latter also where another take gave the source its first offset
            IF NOT v_many THEN
                RAISE;
            END IF;
            v_many := false;
            v_exclusive := true;
        END;
    END LOOP;
    RETURN NEXT ROW(v_status, NULL, NULL, NULL, o.identity, o.at, CASE WHEN v_status = 'taken' THEN _at() ELSE o.moved_at END)::taken;
    IF v_receipts IS NOT NULL THEN
        RETURN QUERY SELECT r.status, r.of, r.refusal, r.why, NULL::text, NULL::text, NULL::bigint FROM unnest(v_receipts) r ORDER BY r.i;
    END IF;
    PERFORM _ring();
END $$;

-- Move an offset that was locked, or was not there, when it was looked at.
CREATE OR REPLACE FUNCTION _move_offset(p_source text, p_identity text, p_expect text, p_then text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_then IS NULL THEN
        DELETE FROM source_offset WHERE source = p_source;
    ELSIF p_expect IS NULL THEN
        INSERT INTO source_offset (source, identity, at, moved_at) VALUES (p_source, p_identity, p_then, _at());
    ELSE
        UPDATE source_offset SET at = p_then, moved_at = _at() WHERE source = p_source;
    END IF;
END $$;

-- Offsets by the names of their sources, from behind one.
CREATE OR REPLACE FUNCTION offsets(p_after text, p_limit integer) RETURNS SETOF source_offset LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT * FROM source_offset o WHERE o.source > p_after COLLATE "C" ORDER BY o.source LIMIT p_limit
$$;
