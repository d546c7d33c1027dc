-- add_job: write the moving part of a new job.
-- ?1 seq, ?2 id, ?3 queue, ?4 type, ?5 created, ?6 lease ttl, ?7 limit key, ?8 ripe, ?9 progress,
-- then as swap: ?10 state, ?11 priority, ?12 moved, ?13 lift at, ...
INSERT INTO job (
    seq, id, queue, type, created_at, lease_ttl, limit_key, ripe, progress,
    state, priority, rank, moved, lift_at, revision, attempt, max_attempts, generation, held,
    updated_at, expires_at, due_at, scheduled_at, started_at, finished_at,
    lease_version, lease_until, token, worker, cancel, failed_at, category, code, failure, result
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,
    ?10, ?11, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
    ?19, ?20, ?21, ?22, ?23, ?24,
    ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34
)
