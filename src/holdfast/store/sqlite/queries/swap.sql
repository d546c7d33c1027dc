-- swap: write a decided job. It takes a new place only with a transition.
-- NULL is bound as -1 or an empty text
-- ?1 seq, ?2 whether it has a transition, ?3 state, ?4 priority, ?5 moved, ?6 lift at, ...
UPDATE job SET
    state = ?3,
    priority = ?4,
    rank = CASE WHEN ?2 THEN ?4 ELSE rank END,
    moved = ?5,
    lift_at = nullif(?6, -1),
    revision = ?7,
    attempt = ?8,
    max_attempts = ?9,
    generation = ?10,
    held = ?11,
    updated_at = ?12,
    expires_at = ?13,
    due_at = nullif(?14, -1),
    scheduled_at = nullif(?15, -1),
    started_at = nullif(?16, -1),
    finished_at = nullif(?17, -1),
    lease_version = nullif(?18, -1),
    lease_until = nullif(?19, -1),
    token = ?20,
    worker = ?21,
    cancel = nullif(?22, ''),
    failed_at = nullif(?23, -1),
    category = ?24,
    code = ?25,
    failure = nullif(?26, ''),
    result = nullif(?27, '')
WHERE seq = ?1
