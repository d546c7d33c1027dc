-- The first schema. Times are microseconds since 1970 in UTC.

-- The part of a job that moves; narrow, because every claim and settlement rewrites the row.
CREATE TABLE job (
    seq           INTEGER PRIMARY KEY, -- the journal number of its birth: order of submission
    id            ANY NOT NULL,        -- a UUID as 16 bytes, any other id as text
    state         TEXT NOT NULL,
    queue         TEXT NOT NULL,
    type          TEXT NOT NULL,
    priority      INTEGER NOT NULL,
    rank          INTEGER NOT NULL,    -- the priority after ageing
    moved         INTEGER NOT NULL,    -- newest transition; while SCHEDULED, its place in the queue
    lift_at       INTEGER,             -- when ageing lifts it next
    revision      INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    max_attempts  INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    held          INTEGER NOT NULL,
    ripe          INTEGER NOT NULL,    -- whether a verdict by its dependencies may be due
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    due_at        INTEGER,
    scheduled_at  INTEGER,
    started_at    INTEGER,
    finished_at   INTEGER,
    lease_ttl     INTEGER NOT NULL,
    lease_version INTEGER,             -- NULL: never claimed
    lease_until   INTEGER,
    token         TEXT NOT NULL DEFAULT '',
    worker        TEXT NOT NULL DEFAULT '',
    limit_key     TEXT,
    failed_at     INTEGER,
    category      TEXT NOT NULL DEFAULT '',
    code          TEXT NOT NULL DEFAULT '',
    cancel        BLOB,
    progress      BLOB,
    failure       BLOB,
    result        BLOB
) STRICT;

CREATE UNIQUE INDEX job_id ON job (id);
CREATE INDEX job_type ON job (type, seq);
CREATE INDEX job_state ON job (state, seq);
CREATE INDEX job_ready ON job (queue, rank, moved, type) WHERE state = 'SCHEDULED';
CREATE INDEX job_lift ON job (queue, lift_at) WHERE lift_at IS NOT NULL;
CREATE INDEX job_due ON job (due_at) WHERE state IN ('DELAYED', 'RETRYING');
CREATE INDEX job_ripe ON job (seq) WHERE state = 'PENDING' AND ripe = 1 AND held = 0;
CREATE INDEX job_lease ON job (lease_until) WHERE state = 'RUNNING';
CREATE INDEX job_limited ON job (type, limit_key) WHERE state = 'RUNNING' AND limit_key IS NOT NULL;
CREATE INDEX job_lifetime ON job (expires_at) WHERE finished_at IS NULL; -- claim leaves it alone
CREATE INDEX job_finished ON job (state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_failed ON job (failed_at, seq, state, category, code, type, queue)
    WHERE failed_at IS NOT NULL;

-- What never changes after submission.
CREATE TABLE body (
    seq         INTEGER PRIMARY KEY,
    kind        TEXT NOT NULL, -- of dependency
    spawner     ANY,
    correlation TEXT,
    tags        BLOB,
    options     BLOB NOT NULL, -- the same for most jobs of a type, so reading it can be cached
    extra       BLOB,          -- what few jobs have: a key, dependencies
    payload     BLOB NOT NULL
) STRICT;

CREATE INDEX body_spawner ON body (spawner, seq) WHERE spawner IS NOT NULL;
CREATE INDEX body_correlation ON body (correlation, seq) WHERE correlation IS NOT NULL;

CREATE TABLE tag (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (name, value, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoint (
    seq  INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE log (
    number  INTEGER PRIMARY KEY,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    level   TEXT NOT NULL,
    message TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    fields  BLOB
) STRICT;

CREATE INDEX log_job ON log (seq);

-- History and event stream at once; rows are only ever added and dropped. The stream is read by
-- number. A job's history is a chain from its newest transition (job.moved) back to its birth:
-- no index has to be kept for it.
CREATE TABLE journal (
    number        INTEGER PRIMARY KEY,
    seq           INTEGER NOT NULL,
    previous      INTEGER NOT NULL, -- the job's transition before this one; -1 at its birth
    event         TEXT NOT NULL, -- 'progress', or the event of a transition
    from_state    TEXT NOT NULL, -- empty at the birth of a job
    to_state      TEXT NOT NULL,
    at            INTEGER NOT NULL,
    reason        TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    lease_version INTEGER NOT NULL,
    worker        TEXT NOT NULL,
    detail        BLOB           -- the failure, or the progress
) STRICT;

CREATE INDEX journal_progress ON journal (number) WHERE event = 'progress';

-- Where in the journal each minute lies. Clocks of processes differ a little, so minutes may
-- overlap; but nothing that happened in a minute lies outside its bounds.
CREATE TABLE mark (
    minute INTEGER PRIMARY KEY,
    first  INTEGER NOT NULL,
    last   INTEGER NOT NULL
) STRICT;

-- Deleted jobs whose events are still kept.
CREATE TABLE gone (
    seq   INTEGER PRIMARY KEY,
    id    ANY NOT NULL,
    queue TEXT NOT NULL,
    type  TEXT NOT NULL,
    moved INTEGER NOT NULL
) STRICT;

CREATE INDEX gone_moved ON gone (moved);

CREATE TABLE edge (
    number INTEGER PRIMARY KEY, -- the order in which a child named its parents
    child  INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    name   ANY NOT NULL,        -- the parent's id, should it be deleted before the child
    ended  TEXT                 -- how the parent ended; NULL while it is open
) STRICT;

CREATE UNIQUE INDEX edge_child ON edge (child, parent);
CREATE INDEX edge_parent ON edge (parent);
CREATE INDEX edge_open ON edge (child) WHERE ended IS NULL;

CREATE TABLE key (
    scope      TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     TEXT NOT NULL,
    expires_at INTEGER,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_expires ON key (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX key_job ON key (seq);

CREATE TABLE tally (
    queue    TEXT NOT NULL,
    type     TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state    TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (queue, type, priority, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE minute (
    minute   INTEGER NOT NULL,
    queue    TEXT NOT NULL,
    type     TEXT NOT NULL,
    priority INTEGER NOT NULL,
    measure  TEXT NOT NULL,
    bucket   INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    top      REAL NOT NULL,
    PRIMARY KEY (minute, queue, type, priority, measure, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE queue (
    name   TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0,
    ageing INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE rule (
    scope       TEXT PRIMARY KEY,
    concurrency INTEGER,
    rate        INTEGER,
    per         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Claims counted against a rate.
CREATE TABLE rate_window (
    scope   TEXT PRIMARY KEY,
    started INTEGER NOT NULL,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE hold (
    name   TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until  INTEGER NOT NULL,
    data   BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Moves when settings change, so that other processes notice.
CREATE TABLE settings (
    version INTEGER NOT NULL
) STRICT;

INSERT INTO settings (version) VALUES (0);
