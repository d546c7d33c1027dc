-- works with: 1

-- Pending links: dependencies of jobs that were submitted in a caller's transaction on jobs outside
-- of it. They become links after its commit: a long transaction must not lock running jobs.
CREATE TABLE {schema}.tie (
    child bigint NOT NULL,
    parent bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    seen {schema}.state,
    CONSTRAINT tie_pkey PRIMARY KEY (child, parent)
);
CREATE INDEX tie_parent ON {schema}.tie (parent);
COMMENT ON COLUMN {schema}.tie.name IS 'the id of the parent';
COMMENT ON COLUMN {schema}.tie.seen IS 'how the parent had ended by then, if it had';
