-- adopt_job: write the changing part of a job from another store.
-- ?1 seq, ?2 id, ?3 queue, ?4 type, ?5 created, ?6 lease ttl, ?7 limit key, ?8 ripe, ?9 progress,
-- NULL is bound as -1 or an empty text
-- then as swap: ?10 state, ?11 priority, ?12 moved, ?13 lift at, ...
INSERT INTO job (
    seq, id, queue, type, created_at, lease_ttl, limit_key, ripe, progress,
    state, priority, rank, moved, lift_at, revision, attempt, max_attempts, generation, held,
    updated_at, expires_at, due_at, scheduled_at, started_at, finished_at,
    lease_version, lease_until, token, worker, cancel, failed_at, category, code, failure, result
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, ''), ?8, nullif(?9, ''),
    ?10, ?11, ?11, ?12, nullif(?13, -1), ?14, ?15, ?16, ?17, ?18,
    ?19, ?20, nullif(?21, -1), nullif(?22, -1), nullif(?23, -1), nullif(?24, -1),
    nullif(?25, -1), nullif(?26, -1), ?27, ?28, nullif(?29, ''),
    nullif(?30, -1), ?31, ?32, nullif(?33, ''), nullif(?34, '')
)
