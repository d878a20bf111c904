-- Layout 2: what verbs are called with and answer, and what callers leave in transactions of their own.

-- What a verb is called with, and what it answers.
CREATE TYPE asked AS (
    i            integer,
    id           uuid,
    task         text,
    queue        text,
    lane         text,
    priority     smallint,
    key          text,
    mode         smallint,
    win          bigint,
    delay        bigint,
    run_at       bigint,
    expires      bigint,
    payload      bytea,
    headers      bytea,
    tags         bytea,
    max_attempts integer,
    revision     bigint,
    flow         text,
    after_ids    uuid[],
    after_on     smallint[]
);
CREATE TYPE receipt AS (i integer, status text, of uuid, refusal text, why text);
CREATE TYPE ruling AS (
    outcome     text,
    move        text,
    state       smallint,
    reason      text,
    delay       bigint,
    charged     boolean,
    keeps_place boolean
);
CREATE TYPE ask AS (
    queues     text[],
    slots      integer,
    size       integer,
    session    text,
    seq        bigint,
    visibility bigint,
    alone      boolean,
    max_bytes  bigint,
    draw       bigint,
    has_lock   boolean     -- the step has the namespace to itself
);
-- The first row is the head (no job), the others are leases.
CREATE TYPE claimed AS (
    asker        text,
    more         boolean,
    next_in      bigint,
    suspects     integer,
    verdicts     text[],
    outcomes     text[],
    states       smallint[],
    whys         text[],
    job          uuid,
    fence        bigint,
    task         text,
    queue        text,
    lane         text,
    priority     smallint,
    attempt      integer,
    max_attempts integer,
    crashes      integer,
    revision     bigint,
    payload      bytea,
    headers      bytea,
    tags         bytea,
    flow         text,
    parents      uuid[],
    memo_names   text[],
    memo_values  bytea[],
    waited       bigint,
    expires_in   bigint,
    visibility   bigint
);
-- Groups that were enqueued in a transaction of the caller's own: only inserted there, so that nobody ever waits for it.
-- The store takes them in once they are committed.
CREATE TABLE inbox (
    i    bigint  PRIMARY KEY DEFAULT nextval('number'),
    jobs asked[] NOT NULL
);
-- Leases that were settled as done in a transaction of the caller's own; what that brings about is done afterwards.
CREATE TABLE aftermath (
    job     uuid    PRIMARY KEY,
    i       bigint  NOT NULL DEFAULT nextval('number'),
    fence   bigint  NOT NULL,
    runtime bigint,
    result  bytea,
    spawn   asked[] NOT NULL
);
-- A job as it is read; listings leave out what is large. In the head of a page, `n` is where to go on.
CREATE TYPE job_row AS (
    place            bigint,
    id               uuid,
    n                bigint,
    task             text,
    queue            text,
    lane             text,
    priority         smallint,
    state            smallint,
    reason           text,
    attempt          integer,
    max_attempts     integer,
    crashes          integer,
    fence            bigint,
    key              text,
    tags             bytea,
    flow             text,
    parent           uuid,
    revision         bigint,
    accepted_at      bigint,
    due_at           bigint,
    expires_at       bigint,
    finished_at      bigint,
    session          text,
    cancel_requested boolean,
    hold_key         text,
    hold_reason      bytea,
    held_since       bigint,
    held_times       integer,
    waiting_for      integer,
    replays          integer,
    permille         integer,
    message          bytea,
    pruned           boolean,
    payload          bytea,
    headers          bytea,
    after_ids        uuid[],
    after_on         smallint[],
    result           bytea,
    error            bytea,
    history          text,
    lines            bytea[],
    memos            text[]
);
