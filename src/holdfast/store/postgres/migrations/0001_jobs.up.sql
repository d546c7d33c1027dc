-- works with: 1

CREATE TYPE {schema}.state AS ENUM (
    'PENDING', 'SCHEDULED', 'DELAYED', 'RUNNING', 'RETRYING',
    'COMPLETED', 'FAILED', 'DEAD_LETTER', 'CANCELLED'
);

-- Submission order and order of service. CACHE 1: sessions must not draw numbers in blocks, or a
-- job submitted later could be served first.
CREATE SEQUENCE {schema}.place AS bigint CACHE 1;

-- What never changes after submission. Written once, so its indexes are written once.
CREATE TABLE {schema}.body (
    number bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    policy json NOT NULL,
    lease_ttl interval NOT NULL,
    created_at timestamptz NOT NULL,
    tags jsonb,
    correlation_id text COLLATE "C",
    callback_url text,
    limit_key text COLLATE "C",
    dedupe json,
    depends_on text[],
    dependency_kind text,
    depth integer NOT NULL DEFAULT 0,
    spawned_by text COLLATE "C",
    CONSTRAINT body_pkey PRIMARY KEY (number),
    CONSTRAINT body_id UNIQUE (id)
);
CREATE INDEX body_type ON {schema}.body (type, number);
CREATE INDEX body_queue ON {schema}.body (queue, number);
CREATE INDEX body_created ON {schema}.body (created_at);
CREATE INDEX body_correlation ON {schema}.body (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX body_spawned ON {schema}.body (spawned_by) WHERE spawned_by IS NOT NULL;
CREATE INDEX body_tags ON {schema}.body USING gin (tags jsonb_path_ops) WHERE tags IS NOT NULL;

-- What changes: one narrow row per job, rewritten on every transition.
CREATE TABLE {schema}.job (
    number bigint NOT NULL,
    place bigint,
    xid xid8 NOT NULL,
    updated_at timestamptz NOT NULL,
    due_at timestamptz,
    scheduled_at timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz NOT NULL,
    lease_until timestamptz,
    failed_at timestamptz,
    state {schema}.state NOT NULL,
    revision integer NOT NULL,
    attempt integer NOT NULL,
    max_attempts integer NOT NULL,
    generation integer NOT NULL,
    lease_version integer NOT NULL DEFAULT 0,
    priority smallint NOT NULL,
    level smallint NOT NULL,
    held boolean NOT NULL,
    awaited boolean NOT NULL DEFAULT false,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    lease_token text COLLATE "C",
    lease_worker text,
    failure_category text COLLATE "C",
    failure_code text COLLATE "C",
    failure json,
    cancel json,
    progress json,
    result bytea,
    checkpoint bytea,
    CONSTRAINT job_pkey PRIMARY KEY (number)
) WITH (
    -- Every job is rewritten at least twice: leave room on the page, and clean up early.
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
COMMENT ON COLUMN {schema}.job.awaited IS 'another job was ever made to depend on this one';
COMMENT ON COLUMN {schema}.job.level IS 'priority after ageing; the order of service goes by it';
COMMENT ON COLUMN {schema}.job.xid IS 'the transaction of the newest transition';
CREATE INDEX job_ready ON {schema}.job (queue, level, place) WHERE state = 'SCHEDULED';
CREATE INDEX job_due ON {schema}.job (due_at, number) WHERE state IN ('DELAYED', 'RETRYING');
-- For searches. Most jobs are SCHEDULED once, RUNNING for a moment and COMPLETED for long; these
-- three states have other indexes.
CREATE INDEX job_state ON {schema}.job (state, number)
    WHERE state NOT IN ('SCHEDULED', 'RUNNING', 'COMPLETED');
CREATE INDEX job_leased ON {schema}.job (least(lease_until, expires_at), number)
    WHERE state = 'RUNNING';
CREATE INDEX job_expires ON {schema}.job (expires_at, number)
    WHERE state IN ('PENDING', 'SCHEDULED', 'DELAYED', 'RETRYING');
CREATE INDEX job_finished ON {schema}.job (state, finished_at, number)
    WHERE finished_at IS NOT NULL;
CREATE INDEX job_failed ON {schema}.job (failed_at, number)
    INCLUDE (state, queue, type, failure_category, failure_code) WHERE failed_at IS NOT NULL;

-- Every transition of every job, and progress: history, audit and event stream in one.
-- Readers go by (xid, seq) and stay below the oldest running transaction, so that no row can
-- appear behind their cursor later.
CREATE TABLE {schema}.journal (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    job bigint NOT NULL,
    at timestamptz NOT NULL,
    attempt integer NOT NULL,
    lease_version integer NOT NULL,
    from_state {schema}.state,
    to_state {schema}.state,
    event text,
    reason text NOT NULL,
    worker text NOT NULL,
    failure json,
    progress json,
    gone json,
    CONSTRAINT journal_pkey PRIMARY KEY (xid, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2);
COMMENT ON COLUMN {schema}.journal.gone IS 'id, type and queue of a job that was deleted since';
CREATE INDEX journal_job ON {schema}.journal (job, seq);
-- What prune deletes once the event stream no longer returns it: events of deleted jobs, progress.
CREATE INDEX journal_fleeting ON {schema}.journal (seq) WHERE gone IS NOT NULL OR event IS NULL;

CREATE TABLE {schema}.log (
    job bigint NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    line json NOT NULL,
    CONSTRAINT log_pkey PRIMARY KEY (job, seq)
);

-- At most one job per (scope, key) until expires_at.
CREATE TABLE {schema}.dedupe (
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest text,
    job_id text COLLATE "C",
    expires_at timestamptz,
    CONSTRAINT dedupe_pkey PRIMARY KEY (scope, key)
);
CREATE INDEX dedupe_expires ON {schema}.dedupe (expires_at) WHERE expires_at IS NOT NULL;

-- Links from jobs to their dependencies; ended is null while the parent is open, gone until it is
-- deleted.
CREATE TABLE {schema}.edge (
    child bigint NOT NULL,
    parent bigint NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    ended {schema}.state,
    gone text COLLATE "C",
    CONSTRAINT edge_pkey PRIMARY KEY (child, parent)
);
COMMENT ON COLUMN {schema}.edge.gone IS 'the id of a parent that was deleted since';
CREATE INDEX edge_parent ON {schema}.edge (parent);

-- How many parents of a waiting job are open, and whether one end was enough for a verdict.
CREATE TABLE {schema}.waiting (
    child bigint NOT NULL,
    open integer NOT NULL,
    due boolean NOT NULL,
    eager boolean NOT NULL,
    CONSTRAINT waiting_pkey PRIMARY KEY (child)
);
CREATE INDEX waiting_ripe ON {schema}.waiting (child) WHERE due OR open = 0;

-- Counters: what each statement added, and the sums of what was folded in. A delta is a step of
-- a tally (minute is null), of a reading (its minute), or of a toll (minute is -1).
CREATE TABLE {schema}.delta (
    minute integer,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    name text COLLATE "C" NOT NULL,
    bucket smallint NOT NULL,
    count bigint NOT NULL,
    top double precision NOT NULL,
    category text COLLATE "C",
    code text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE TABLE {schema}.tally (
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    state {schema}.state NOT NULL,
    count bigint NOT NULL,
    CONSTRAINT tally_pkey PRIMARY KEY (queue, type, priority, state)
) WITH (fillfactor = 50);
CREATE TABLE {schema}.reading (
    minute integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    measure text COLLATE "C" NOT NULL,
    bucket smallint NOT NULL,
    count bigint NOT NULL,
    top double precision NOT NULL,
    CONSTRAINT reading_pkey PRIMARY KEY (minute, queue, type, priority, measure, bucket)
) WITH (fillfactor = 70);

-- How many ended jobs carry which failure.
CREATE TABLE {schema}.toll (
    state {schema}.state NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    category text COLLATE "C" NOT NULL,
    code text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    CONSTRAINT toll_pkey PRIMARY KEY (state, queue, type, category, code)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.queue (
    name text COLLATE "C" NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    ageing interval,
    CONSTRAINT queue_pkey PRIMARY KEY (name)
);
CREATE TABLE {schema}.rule (
    scope text COLLATE "C" NOT NULL,
    concurrency integer,
    rate integer,
    per interval NOT NULL,
    CONSTRAINT rule_pkey PRIMARY KEY (scope)
);
CREATE TABLE {schema}.rate_window (
    scope text COLLATE "C" NOT NULL,
    started integer NOT NULL,
    until timestamptz NOT NULL,
    CONSTRAINT rate_window_pkey PRIMARY KEY (scope)
);
CREATE TABLE {schema}.hold (
    name text COLLATE "C" NOT NULL,
    holder text NOT NULL,
    until timestamptz NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT hold_pkey PRIMARY KEY (name)
);
