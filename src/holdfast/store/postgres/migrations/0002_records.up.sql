-- works with: 1

-- Small records beside the jobs, by kind and key.
CREATE TABLE {schema}.record (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    version bigint NOT NULL,
    CONSTRAINT record_pkey PRIMARY KEY (kind, key)
);
