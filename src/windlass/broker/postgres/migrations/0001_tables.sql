-- The first layout of a namespace.
--
-- in:   an empty schema, which is the first of the search path
-- out:  every table; `meta` has its one row
-- cost: one transaction, the same for every namespace
--
-- Times are microseconds. States are numbers: -1 not placed yet, 0 blocked, 1 scheduled, 2 ready, 3 running,
-- 4 done, 5 dead, 6 cancelled (`records.py`). A suspect has crashed twice or more. Names are compared by code
-- point. What may contain U+0000 (payloads, errors, causes, log lines) is bytea.

-- What a namespace has one of. Sweep alone writes the clocks; opening writes the options.
CREATE TABLE meta (
    one             boolean PRIMARY KEY DEFAULT true CHECK (one),
    mark            bigint  NOT NULL DEFAULT 0,
    live            bigint  NOT NULL DEFAULT 0,      -- the liveness clock
    swept_at        bigint,
    left_work       boolean NOT NULL DEFAULT false,
    cleared         bigint  NOT NULL DEFAULT 0,      -- no row of `delta`, `event_in` and `moved` up to this number is left
    version         bigint  NOT NULL DEFAULT 0,      -- of all settings
    session_ttl     bigint  NOT NULL DEFAULT 30000000,
    resend_window   bigint  NOT NULL DEFAULT 10000000,
    retention       bigint  NOT NULL DEFAULT 86400000000,
    retention_count bigint,
    segments           smallint[] NOT NULL DEFAULT '{}',  -- those of `past` that hold anything
    result_ttl      bigint  NOT NULL DEFAULT 3600000000,
    dead_retention  bigint  NOT NULL DEFAULT 1209600000000,
    events_kept     bigint  NOT NULL DEFAULT 100000,
    max_size        bigint
) WITH (fillfactor = 20);
INSERT INTO meta DEFAULT VALUES;

-- One sequence numbers arrivals, places and leases. A draw is of 1,024 numbers (`_draw_numbers`), so that the jobs of a call follow each other.
CREATE SEQUENCE number;

-- A declared queue, with the policy in force.
CREATE TABLE queue (
    name             text COLLATE "C" PRIMARY KEY,
    i                bigint   NOT NULL,               -- queues are looked after in the order of their declaration
    laned            boolean  NOT NULL DEFAULT false,
    paused           boolean  NOT NULL DEFAULT false,
    level            bigint,                         -- token bucket: level, time, period
    level_at         bigint,
    level_per        bigint,
    concurrency      bigint,
    rate_count       bigint,
    rate_per         bigint,
    rate_size        bigint,
    lane_concurrency bigint,
    lane_rate_count  bigint,
    lane_rate_per    bigint,
    lane_rate_size   bigint,
    one_ring         boolean  NOT NULL DEFAULT false, -- lanes come before bands
    bands            bigint[],                        -- listed priorities, and their weights
    shares           bigint[],
    age_step         bigint,
    sequence         boolean  NOT NULL DEFAULT false,
    emit             smallint NOT NULL DEFAULT 0,     -- 0 none, 1 final, 2 all
    retention        bigint   NOT NULL DEFAULT 0,
    retention_count  bigint,
    result_ttl       bigint   NOT NULL DEFAULT 0,
    dead_retention   bigint   NOT NULL DEFAULT 0,
    unlimited        boolean  NOT NULL DEFAULT false, -- no limit, no weighted bands, no sequence
    segment             smallint NOT NULL DEFAULT 0      -- of `past`, where its finished jobs go now
) WITH (fillfactor = 50);

-- One end of a lease.
CREATE TYPE ended AS (
    fence      bigint,
    attempt    integer,
    session    text,
    claimed_at bigint,
    ended_at   bigint,
    outcome    text,
    settled    boolean,
    cause      bytea,
    runtime    bigint,
    error      bytea
);

-- A job, whole. Small payloads travel with their row; large ones are stored out of line and never rewritten. A claim does not write it: a job that is
-- `ready` here may be running, if a row of `lease` says so. `_as_leased` fills in what the lease says: state, attempt, fence, claimed_at, session,
-- deadline and cancel_requested.
CREATE TABLE job (
    id               uuid     PRIMARY KEY,
    n                bigint   NOT NULL,               -- the number of its arrival
    state            smallint NOT NULL,
    priority         smallint NOT NULL,
    attempt          integer  NOT NULL DEFAULT 0,
    max_attempts     integer  NOT NULL,
    crashes          integer  NOT NULL DEFAULT 0,
    revision         bigint   NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    lane             text COLLATE "C" NOT NULL,
    task             text COLLATE "C" NOT NULL,
    band             bigint   NOT NULL DEFAULT 0,
    seq              bigint   NOT NULL DEFAULT 0,
    accepted_at      bigint   NOT NULL,
    due_at           bigint   NOT NULL,
    fence            bigint   NOT NULL DEFAULT 0,
    claimed_at       bigint   NOT NULL DEFAULT 0,
    size             bigint   NOT NULL,               -- bytes of payload and result
    started          boolean  NOT NULL DEFAULT false,
    cancel_requested boolean  NOT NULL DEFAULT false,
    has_children     boolean  NOT NULL DEFAULT false,
    has_memos        boolean  NOT NULL DEFAULT false,
    waiting_for      integer  NOT NULL DEFAULT 0,
    replays          integer  NOT NULL DEFAULT 0,
    log_lines        bigint   NOT NULL DEFAULT 0,     -- ever written; the last 100 are in `log`
    kept             smallint,                        -- finished: 0 without result, 1 with, 2 dead
    reason           text,
    parent           uuid,
    flow             text COLLATE "C" NOT NULL DEFAULT '',
    line             bigint,                          -- in a queue with `sequence`: its place in its lane
    expires_at       bigint,
    session          text COLLATE "C",
    deadline         bigint,
    finished_at      bigint,
    pruned_until     bigint,                          -- not kept; how it ended is remembered, until then
    key              text COLLATE "C",
    mode             smallint NOT NULL DEFAULT 0,     -- 0 ignore, 1 replace, 2 throttle
    win              bigint   NOT NULL DEFAULT 0,
    hold_key         text COLLATE "C",
    hold_reason      bytea,
    held_since       bigint,
    held_times       integer,
    permille         integer,
    message          bytea,
    after_ids        uuid[],
    after_on         smallint[],                      -- 0 cancel, 1 ignore, 2 run
    headers          bytea,
    tags             bytea,
    deliveries       ended[],                         -- the last ten ends of leases
    error            bytea,
    result           bytea,
    payload          bytea    NOT NULL,
    segment             smallint,                        -- in `past`: which
    -- Kept by every statement that changes what they follow from; generated columns would cost each statement 11 µs a column.
    timer            bigint,                          -- when time alone changes it: expiry (not started), or when it is forgotten
    waits            smallint                         -- its state, if it is blocked or scheduled
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.05);

-- As few indexes as answer every question: each costs every
-- statement that writes jobs 5 to 10 µs, whether the job is in it or not. All but two are partial. No two could serve one
-- question: with statistics of another day the planner takes the wrong one.
CREATE UNIQUE INDEX job_n ON job (n);
CREATE INDEX job_due     ON job (queue, waits, due_at, seq)      WHERE waits IS NOT NULL; -- scheduled in order; blocked
CREATE INDEX job_suspect ON job (queue, seq)                     WHERE waits = 1 AND crashes >= 2;
CREATE INDEX job_line    ON job (queue, lane, line)              WHERE line IS NOT NULL;
CREATE INDEX job_timer   ON job (timer, n)                       WHERE timer IS NOT NULL;
CREATE INDEX job_held    ON job (hold_key, due_at, seq)          WHERE hold_key IS NOT NULL AND waits = 1;
CREATE INDEX job_kept    ON job (queue, kept, finished_at, n)    WHERE kept IS NOT NULL;
CREATE INDEX job_dead    ON job (n)                              WHERE kept = 2;
CREATE INDEX job_flow    ON job (flow, n)                        WHERE flow <> '';
-- Unfinished flows are found by name, whatever came after them (`unfinished_flows`). The columns behind the flow are for the order in which a flow's
-- jobs are asked for: no other index has it, so the planner cannot take another.
CREATE INDEX job_unfinished ON job (flow, waits, hold_key)       WHERE flow <> '' AND finished_at IS NULL;
CREATE INDEX job_failed  ON job (flow, finished_at)              WHERE flow <> '' AND kept = 2;

-- Finished jobs that nothing depends on, by the time of their end: written once, and removed by emptying a whole segment once
-- all of it is old. Five segments for each class of retention (up to an hour, up to two days, longer), used in turn;
-- `past_rest` is for what has no segment. A job is `job` or here, never both.
CREATE TABLE past (LIKE job INCLUDING DEFAULTS) PARTITION BY LIST (segment);
CREATE INDEX past_id   ON past (id);
CREATE INDEX past_n    ON past (n);
CREATE INDEX past_kept ON past (queue, kept, finished_at, n) WHERE kept IS NOT NULL;
CREATE TABLE segment (
    segment      smallint PRIMARY KEY,
    class     smallint NOT NULL,
    opened_at bigint,                                 -- NULL: empty
    closed_at bigint                                  -- NULL: jobs go there now
);
DO $$
BEGIN
    FOR v_segment IN 0 .. 14 LOOP
        EXECUTE format('CREATE TABLE past_%s PARTITION OF past FOR VALUES IN (%s) WITH (autovacuum_vacuum_insert_threshold = -1)',
            v_segment, v_segment);
        INSERT INTO segment (segment, class) VALUES (v_segment, v_segment / 5);
    END LOOP;
END $$;
CREATE TABLE past_rest PARTITION OF past DEFAULT;

-- Up to where the past of a queue is forgotten: jobs without a result (0), with one (1), and the results themselves (2).
CREATE TABLE horizon (
    queue       text COLLATE "C" NOT NULL,
    kind        smallint NOT NULL,
    finished_at bigint   NOT NULL,
    n           bigint   NOT NULL,
    PRIMARY KEY (queue, kind)
) WITH (fillfactor = 50);

-- Runs. Jobs that came alike in one call have numbers that follow each other, and stand together: a row of `ready` or `lease` is a run of jobs,
-- (n, width). A job that came alone is a run of one. A claim takes runs from `ready` to `lease` and leaves the rows of the jobs alone.
--
-- Ready jobs in order, with what a claim decides by. The jobs of a run differ in nothing but id, payload and size; `seq` of each is its number.
CREATE TABLE ready (
    queue      text COLLATE "C" NOT NULL,
    lane       text COLLATE "C" NOT NULL,
    band       bigint   NOT NULL,
    seq        bigint   NOT NULL,
    n          bigint   NOT NULL,                     -- the first of its jobs
    width      integer  NOT NULL DEFAULT 1,
    task       text COLLATE "C" NOT NULL,
    size       bigint   NOT NULL,                     -- bytes of all their payloads
    expires_at bigint,                                -- of a job that never started
    last       boolean  NOT NULL,                     -- its next attempt is the last one
    suspect    boolean  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX ready_place   ON ready (queue, lane, band, seq);
CREATE INDEX ready_suspect ON ready (queue, seq) WHERE suspect;

-- Floors: below `seq`, no job of a band is ready in the plain lane (suspects do not count). A claim starts there, and so passes over what a transaction
-- that was left open keeps of jobs that are gone. The first claim from a band makes its row, sweep raises it, and a job that goes back to an older place
-- lowers it.
CREATE TABLE floor (
    queue text COLLATE "C" NOT NULL,
    band  bigint NOT NULL,
    seq   bigint NOT NULL,
    PRIMARY KEY (queue, band)
) WITH (fillfactor = 50);

-- Running jobs, by their session ("": a deadline lease) and by their lane. The fence of each is `_new_fence` of the last that its row knows, and `at`.
CREATE TABLE lease (
    session   text COLLATE "C" NOT NULL,
    n         bigint   NOT NULL,                      -- the first of its jobs
    width     integer  NOT NULL,
    remaining integer  NOT NULL,                      -- how many of them have not ended
    i         bigint   NOT NULL,                      -- leases end in the order of their claims
    ask       bigint,                                 -- the session's ask that it answered
    queue     text COLLATE "C" NOT NULL,
    lane      text COLLATE "C" NOT NULL,
    at        bigint   NOT NULL,                      -- when it was claimed
    deadline  bigint,
    flagged   boolean  NOT NULL DEFAULT false,        -- to be cancelled
    PRIMARY KEY (session, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX lease_place    ON lease (queue, lane, n);
CREATE INDEX lease_deadline ON lease (deadline, n) WHERE deadline IS NOT NULL;
CREATE INDEX lease_flagged  ON lease (session, i)  WHERE flagged;

CREATE TABLE log (
    n    bigint NOT NULL,
    i    bigint NOT NULL,
    line bytea  NOT NULL,
    PRIMARY KEY (n, i)
);

CREATE TABLE memo (
    n     bigint NOT NULL,
    name  text COLLATE "C" NOT NULL,
    value bytea  NOT NULL,
    PRIMARY KEY (n, name)
);

-- Edges stay until their child is removed: a parent is kept while an unfinished child may read it.
CREATE TABLE edge (
    parent     uuid     NOT NULL,
    child      bigint   NOT NULL,
    on_failure smallint NOT NULL,
    open       boolean  NOT NULL,                     -- unresolved: the child waits for it
    PRIMARY KEY (parent, child)
);
CREATE INDEX edge_open  ON edge (parent, child) WHERE open;
CREATE INDEX edge_run   ON edge (parent, child) WHERE open AND on_failure = 2;
CREATE INDEX edge_child ON edge (child);

-- Ends that dependents are to be told, oldest first.
CREATE TABLE fate (
    i      bigint   PRIMARY KEY DEFAULT nextval('number'),
    parent uuid     NOT NULL,
    state  smallint NOT NULL
);
CREATE INDEX fate_parent ON fate (parent);

CREATE TABLE unique_key (
    queue       text COLLATE "C" NOT NULL,
    lane        text COLLATE "C" NOT NULL,
    task        text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    holder      uuid     NOT NULL,
    mode        smallint NOT NULL,
    win         bigint   NOT NULL,
    accepted_at bigint   NOT NULL,
    follower    uuid,
    until       bigint,                               -- once its holder has finished: when it is free
    PRIMARY KEY (queue, lane, task, key)
);
CREATE INDEX unique_key_until ON unique_key (until) WHERE until IS NOT NULL;

-- Calls that a key answered, to answer them again.
CREATE TABLE absorbed (
    id     uuid   PRIMARY KEY,
    status text   NOT NULL,
    of     uuid,
    until  bigint NOT NULL
);
CREATE INDEX absorbed_until ON absorbed (until);

-- A lane that has settings, tokens or a pause; others have no row.
CREATE TABLE lane (
    queue           text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    paused          boolean NOT NULL DEFAULT false,
    weight          bigint  NOT NULL DEFAULT 1,
    has_concurrency boolean NOT NULL DEFAULT false,   -- says so itself; otherwise the queue's counts
    concurrency     bigint,
    has_rate        boolean NOT NULL DEFAULT false,
    rate_count      bigint,
    rate_per        bigint,
    rate_size       bigint,
    level           bigint,
    level_at        bigint,
    level_per       bigint,
    wake_at         bigint,                           -- parked for want of a token until then
    PRIMARY KEY (queue, name)
) WITH (fillfactor = 70);
CREATE INDEX lane_wake ON lane (queue, wake_at) WHERE wake_at IS NOT NULL;

-- Rings by band; with lanes before bands there is one, under band 0.
CREATE TABLE ring (
    queue       text COLLATE "C" NOT NULL,
    band        bigint NOT NULL,
    time        bigint NOT NULL DEFAULT 0,
    empty_since bigint,                               -- when its last lane left
    PRIMARY KEY (queue, band)
) WITH (fillfactor = 50);

CREATE TABLE seat (
    queue text COLLATE "C" NOT NULL,
    lane  text COLLATE "C" NOT NULL,
    band  bigint NOT NULL,
    clock bigint NOT NULL,
    due   bigint,                                     -- NULL: not in the ring
    PRIMARY KEY (queue, lane, band)
) WITH (fillfactor = 70);
CREATE INDEX seat_due ON seat (queue, band, due, lane) WHERE due IS NOT NULL;

CREATE TABLE session (
    id         text COLLATE "C" PRIMARY KEY,
    i          bigint NOT NULL DEFAULT nextval('number'),
    info       bytea  NOT NULL,
    ttl        bigint NOT NULL,
    queues     text[] NOT NULL,
    opened_at  bigint NOT NULL,
    seen       bigint NOT NULL,
    memory     bigint NOT NULL DEFAULT 0,
    ended_at   bigint,
    silent_for bigint NOT NULL DEFAULT 0,
    cause      bytea,
    cause_kind text,
    started    uuid[],
    fences     bigint[]
) WITH (fillfactor = 50);
CREATE INDEX session_ended ON session (ended_at) WHERE ended_at IS NOT NULL;

-- The last ask of a session that was answered: one row. A claim inserts it anew, with a larger number, and deletes the one before: a number that is
-- updated in place would have to be looked for among all its older versions, which stay while a transaction is left open.
CREATE TABLE answered (
    session text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    PRIMARY KEY (session, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE document (
    kind     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    lane     text COLLATE "C" NOT NULL,
    declared bytea,
    override bytea,
    app      text   NOT NULL DEFAULT '',
    revision bigint NOT NULL DEFAULT 0,
    version  bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, name, lane)
);

CREATE TABLE schedule (
    name     text COLLATE "C" PRIMARY KEY,
    declared bytea,
    override bytea,
    app      text    NOT NULL DEFAULT '',
    revision bigint  NOT NULL DEFAULT 0,
    version  bigint  NOT NULL DEFAULT 0,
    next_at  bigint,
    paused   boolean NOT NULL DEFAULT false,
    fires    jsonb   NOT NULL DEFAULT '[]'
);

-- How far each log has been taken.
CREATE TABLE source_offset (
    source   text COLLATE "C" PRIMARY KEY,
    identity text COLLATE "C" NOT NULL,
    at       text COLLATE "C" NOT NULL,
    moved_at bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Tasks of which a run was timed.
CREATE TABLE timed (task text COLLATE "C" PRIMARY KEY);

-- Counts: rows that are only inserted, and the totals that sweep folds them into. Nobody waits for a counter.
CREATE TABLE delta (
    i     bigint   NOT NULL DEFAULT nextval('number'),
    queue text COLLATE "C" NOT NULL,
    task  text COLLATE "C" NOT NULL,
    state smallint NOT NULL,
    n     bigint   NOT NULL,
    bytes bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX delta_i ON delta (i);
CREATE TABLE total (
    queue text COLLATE "C" NOT NULL,
    task  text COLLATE "C" NOT NULL,
    state smallint NOT NULL,
    n     bigint   NOT NULL,
    bytes bigint   NOT NULL,
    PRIMARY KEY (queue, task, state)
);

-- Transitions: written unnumbered, and numbered once they are committed, since a sequence is not in order of commits.
CREATE TABLE event_in (
    i       bigint   NOT NULL DEFAULT nextval('number'),
    at      bigint   NOT NULL,
    job     uuid     NOT NULL,
    task    text     NOT NULL,
    queue   text     NOT NULL,
    lane    text     NOT NULL,
    move    text     NOT NULL,
    before  smallint,
    after   smallint,
    reason  text,
    outcome text,
    attempt integer  NOT NULL,
    fence   bigint   NOT NULL,
    runtime bigint,
    waited  bigint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX event_in_i ON event_in (i);
CREATE TABLE event (LIKE event_in, PRIMARY KEY (i));
ALTER TABLE event ALTER COLUMN i DROP DEFAULT;
CREATE TABLE event_end (one boolean PRIMARY KEY DEFAULT true CHECK (one), next bigint NOT NULL DEFAULT 0);
INSERT INTO event_end DEFAULT VALUES;

-- The transitions of the step under way, for verbs that return them; empty between steps.
CREATE UNLOGGED TABLE moved (
    i      bigint   NOT NULL DEFAULT nextval('number'),
    job    uuid     NOT NULL,
    queue  text     NOT NULL,
    task   text     NOT NULL,
    lane   text     NOT NULL,
    move   text     NOT NULL,
    before smallint NOT NULL,
    after  smallint NOT NULL,
    reason text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX moved_i ON moved (i);
