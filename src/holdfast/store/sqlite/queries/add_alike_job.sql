-- add_alike_job: write the changing part of a job enqueued at once, unless its id exists
-- the same for all rows: ?1 queue, ?2 type, ?3 lease ttl, ?4 lifetime, ?5 priority, ?6 revision,
-- ?7 max attempts; of each row: ?8 seq, ?9 id, ?10 created
INSERT OR IGNORE INTO job (
    seq, id, queue, type, created_at, updated_at, lease_ttl, ripe, state, priority, rank, moved,
    revision, attempt, max_attempts, generation, held, expires_at, scheduled_at
) VALUES (
    ?8, ?9, ?1, ?2, ?10, ?10, ?3, 0, 'SCHEDULED', ?5, ?5, ?8 + 1, ?6, 0, ?7, 1, 0, ?10 + ?4, ?10
)
