-- The layout of a file.
--
-- in:   an empty database
-- out:  every table; the row of `namespace` is written by the process that creates the file
-- cost: one transaction, the same for every file
--
-- Times are microseconds. A name in braces is a code of `records.py`, put in as a literal (`statements.py`).

-- What a namespace has one of.
CREATE TABLE namespace (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    name      TEXT    NOT NULL,
    mark      INTEGER NOT NULL DEFAULT 0,
    live      INTEGER NOT NULL DEFAULT 0,   -- the liveness clock
    swept_at  INTEGER,
    left_work INTEGER NOT NULL DEFAULT 0,
    number    INTEGER NOT NULL DEFAULT 0,   -- the last number of the store's sequence
    version   INTEGER NOT NULL DEFAULT 0,   -- of all settings
    epoch     INTEGER NOT NULL DEFAULT 0,   -- grows with everything that processes keep in memory: policies
    bytes     INTEGER NOT NULL DEFAULT 0,   -- payloads and results, for max_size
    event_end INTEGER NOT NULL DEFAULT 0,   -- the number of the next event
    edges     INTEGER NOT NULL DEFAULT 0,   -- whether a job ever had a parent
    absorbed  INTEGER NOT NULL DEFAULT 0    -- calls that a key absorbed and that are still remembered
) STRICT;

CREATE TABLE queue (
    q         INTEGER PRIMARY KEY,
    name      TEXT    NOT NULL UNIQUE,
    laned     INTEGER NOT NULL DEFAULT 0,
    paused    INTEGER NOT NULL DEFAULT 0,
    running   INTEGER NOT NULL DEFAULT 0,
    level     INTEGER,                      -- token bucket: level, time, period
    level_at  INTEGER,
    level_per INTEGER
) STRICT;

CREATE TABLE task (
    t     INTEGER PRIMARY KEY,
    name  TEXT    NOT NULL UNIQUE,
    timed INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The head of a job: what changes, and what decides. Bodies are apart, so that a claim and its end rewrite
-- pages with thirty jobs each instead of three.
CREATE TABLE job (
    n                INTEGER PRIMARY KEY,   -- the number of its arrival
    id               TEXT    NOT NULL UNIQUE,
    q                INTEGER NOT NULL,
    t                INTEGER NOT NULL,
    lane             TEXT    NOT NULL,
    accepted_at      INTEGER NOT NULL,
    parent           TEXT,
    flow             TEXT    NOT NULL,
    revision         INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    max_attempts     INTEGER NOT NULL,
    state            INTEGER NOT NULL,
    reason           TEXT,
    band             INTEGER NOT NULL,
    sequence         INTEGER NOT NULL,
    line             INTEGER,               -- in a queue with `sequence`: its place in its lane until it is finished
    attempt          INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    fence            INTEGER NOT NULL,
    started          INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    expires_at       INTEGER,
    session          INTEGER,
    lease            INTEGER,               -- the number of its lease: leases end in the order of their claims
    deadline         INTEGER,
    claimed_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    cancel_requested INTEGER NOT NULL,
    hold_key         TEXT,
    held             BLOB,
    waiting_for      INTEGER NOT NULL,
    replays          INTEGER NOT NULL,
    ends             INTEGER NOT NULL,      -- of leases; the last ten are in `delivery`
    size             INTEGER NOT NULL,      -- bytes of payload and result
    marks            INTEGER NOT NULL,      -- which other tables know of it (`records.Mark`)
    pruned_until     INTEGER                -- not kept; only how it ended is remembered, until then
) STRICT;

-- One index per question. All are partial: a job is in those that its state asks for.
CREATE INDEX job_ready    ON job (q, lane, band, sequence)  WHERE state = {ready} AND crashes < {suspect_after};
CREATE INDEX job_suspect  ON job (q, sequence)              WHERE state = {ready} AND crashes >= {suspect_after};
CREATE INDEX job_due      ON job (q, due_at, sequence)      WHERE state = {scheduled};
CREATE INDEX job_waiting  ON job (q, due_at, sequence)      WHERE state = {ready};
CREATE INDEX job_suspect_due ON job (q, due_at)             WHERE state = {scheduled} AND crashes >= {suspect_after};
CREATE INDEX job_blocked  ON job (q, n)                     WHERE state = {blocked};
CREATE INDEX job_line     ON job (q, lane, line)            WHERE line IS NOT NULL;
CREATE INDEX job_session  ON job (session, lease)           WHERE session IS NOT NULL;
CREATE INDEX job_deadline ON job (deadline, n)              WHERE deadline IS NOT NULL;
CREATE INDEX job_flagged  ON job (session, lease)           WHERE cancel_requested = 1;
CREATE INDEX job_expiry   ON job (expires_at, n)            WHERE expires_at IS NOT NULL AND started = 0 AND state IN ({blocked}, {scheduled}, {ready});
CREATE INDEX job_held     ON job (hold_key, due_at, sequence) WHERE hold_key IS NOT NULL AND state = {scheduled};
CREATE INDEX job_finished ON job (q, (state = {dead}), (marks & {has_result}), finished_at, n) WHERE finished_at IS NOT NULL AND pruned_until IS NULL;
CREATE INDEX job_parent   ON job (q, n)                     WHERE (marks & {has_children}) = {has_children} AND finished_at IS NOT NULL AND pruned_until IS NULL AND state <> {dead};
CREATE INDEX job_dead     ON job (n)                        WHERE state = {dead} AND pruned_until IS NULL;
CREATE INDEX job_pruned   ON job (pruned_until)             WHERE pruned_until IS NOT NULL;
CREATE INDEX job_flow     ON job (flow, n)                  WHERE flow <> '';
CREATE INDEX job_unfinished ON job (flow, state, hold_key)  WHERE flow <> '' AND state < {done};
CREATE INDEX job_failed   ON job (flow)                     WHERE flow <> '' AND state = {dead} AND pruned_until IS NULL;

-- What was asked for. The payload comes last: everything before it is read without its overflow pages.
CREATE TABLE body (
    n       INTEGER PRIMARY KEY,
    key     TEXT,
    mode    TEXT,
    window  INTEGER,
    headers BLOB,
    tags    BLOB,
    after   BLOB,
    payload BLOB NOT NULL
) STRICT;

CREATE TABLE result (
    n           INTEGER PRIMARY KEY,
    q           INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    value       BLOB    NOT NULL
) STRICT;
CREATE INDEX result_age ON result (q, finished_at, n);

CREATE TABLE delivery (
    n      INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    record BLOB    NOT NULL,
    PRIMARY KEY (n, fence)
) STRICT, WITHOUT ROWID;

-- What running jobs say of themselves, and their last error.
CREATE TABLE said (
    n        INTEGER PRIMARY KEY,
    permille INTEGER,
    message  TEXT,
    error    BLOB
) STRICT;

CREATE TABLE log (
    n    INTEGER NOT NULL,
    i    INTEGER NOT NULL,
    line TEXT    NOT NULL,
    PRIMARY KEY (n, i)
) STRICT, WITHOUT ROWID;

CREATE TABLE memo (
    n     INTEGER NOT NULL,
    name  TEXT    NOT NULL,
    value BLOB    NOT NULL,
    PRIMARY KEY (n, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE edge (
    parent     TEXT    NOT NULL,
    child      INTEGER NOT NULL,
    on_failure TEXT    NOT NULL,
    open       INTEGER NOT NULL,            -- unresolved: the child waits for it
    PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_open  ON edge (parent, child) WHERE open = 1;
CREATE INDEX edge_run   ON edge (parent, child) WHERE open = 1 AND on_failure = 'run';
CREATE INDEX edge_child ON edge (child, open);

-- Ends that sweep is to tell dependents, oldest first.
CREATE TABLE fate (
    i      INTEGER PRIMARY KEY,
    parent TEXT    NOT NULL,
    state  INTEGER NOT NULL
) STRICT;
CREATE INDEX fate_parent ON fate (parent);

CREATE TABLE unique_key (
    key         TEXT    NOT NULL,
    q           INTEGER NOT NULL,
    lane        TEXT    NOT NULL,
    t           INTEGER NOT NULL,
    holder      TEXT    NOT NULL,
    mode        TEXT    NOT NULL,
    window      INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    follower    TEXT,
    until       INTEGER,
    PRIMARY KEY (key, q, lane, t)
) STRICT, WITHOUT ROWID;
CREATE INDEX unique_key_until ON unique_key (until) WHERE until IS NOT NULL;

CREATE TABLE absorbed (
    id     TEXT PRIMARY KEY,
    status TEXT    NOT NULL,
    of     TEXT,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX absorbed_until ON absorbed (until);

-- A lane that has, or had, something to say; a queue that never had a lane has no rows unless it is limited.
CREATE TABLE lane (
    q         INTEGER NOT NULL,
    name      TEXT    NOT NULL,
    ready     INTEGER NOT NULL DEFAULT 0,   -- suspects too
    running   INTEGER NOT NULL DEFAULT 0,
    paused    INTEGER NOT NULL DEFAULT 0,
    level     INTEGER,
    level_at  INTEGER,
    level_per INTEGER,
    wake_at   INTEGER,                      -- parked for want of a token until then
    PRIMARY KEY (q, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX lane_wake ON lane (q, wake_at) WHERE wake_at IS NOT NULL;

-- Rings: by band; with lanes before bands there is one, under band 0.
CREATE TABLE ring (
    q    INTEGER NOT NULL,
    band INTEGER NOT NULL,
    time INTEGER NOT NULL,
    empty_since INTEGER,                    -- when its last lane left
    PRIMARY KEY (q, band)
) STRICT, WITHOUT ROWID;

CREATE TABLE place (
    q     INTEGER NOT NULL,
    lane  TEXT    NOT NULL,
    band  INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    due   INTEGER,                          -- NULL: not in the ring
    PRIMARY KEY (q, lane, band)
) STRICT, WITHOUT ROWID;
CREATE INDEX place_due  ON place (q, band, due, lane) WHERE due IS NOT NULL;
CREATE INDEX place_idle ON place (q, band, clock)     WHERE due IS NULL;

CREATE TABLE session (
    s          INTEGER PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    info       BLOB    NOT NULL,
    ttl        INTEGER NOT NULL,
    opened_at  INTEGER NOT NULL,
    seen       INTEGER NOT NULL,
    memory     INTEGER NOT NULL DEFAULT 0,
    seq        INTEGER NOT NULL DEFAULT 0,
    replied    BLOB,
    ended_at   INTEGER,
    silent_for INTEGER NOT NULL DEFAULT 0,
    cause      BLOB,
    started    BLOB
) STRICT;
CREATE INDEX session_ended ON session (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE document (
    kind     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    lane     TEXT    NOT NULL,
    declared BLOB,
    override BLOB,
    app      TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    PRIMARY KEY (kind, name, lane)
) STRICT, WITHOUT ROWID;

CREATE TABLE schedule (
    name     TEXT PRIMARY KEY,
    declared BLOB,
    override BLOB,
    app      TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    next_at  INTEGER,
    paused   INTEGER NOT NULL,
    fires    BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_next ON schedule (next_at) WHERE next_at IS NOT NULL AND paused = 0;

-- How far each log has been taken.
CREATE TABLE source_offset (
    source   TEXT PRIMARY KEY,
    identity TEXT    NOT NULL,
    at       TEXT    NOT NULL,
    moved_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    i      INTEGER PRIMARY KEY,
    record BLOB NOT NULL
) STRICT;

CREATE TABLE tally (
    q     INTEGER NOT NULL,
    t     INTEGER NOT NULL,
    state INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (q, t, state)
) STRICT, WITHOUT ROWID;
