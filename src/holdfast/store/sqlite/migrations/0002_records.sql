-- Small records beside the jobs, by kind and key.
CREATE TABLE record (
    kind    TEXT NOT NULL,
    key     TEXT NOT NULL,
    data    BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
