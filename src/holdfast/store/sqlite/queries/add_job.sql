-- add_job: write the changing part of a new job. NULL is bound as -1 or an empty text
-- ?1 seq, ?2 id, ?3 queue, ?4 type, ?5 created, ?6 lease ttl, ?7 limit key, ?8 ripe, ?9 state,
-- ?10 priority, ?11 moved, ?12 lift at, ?13 revision, ?14 max attempts, ?15 held, ?16 expires,
-- ?17 due, ?18 scheduled
INSERT INTO job (
    seq, id, queue, type, created_at, updated_at, lease_ttl, limit_key, ripe, state, priority, rank,
    moved, lift_at, revision, attempt, max_attempts, generation, held, expires_at, due_at,
    scheduled_at
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?5, ?6, nullif(?7, ''), ?8, ?9, ?10, ?10,
    ?11, nullif(?12, -1), ?13, 0, ?14, 1, ?15, ?16, nullif(?17, -1),
    nullif(?18, -1)
)
