-- settle: write a decided job that ends with only its result.
-- The stored job must be unchanged; NULL is bound as -1 or an empty text
-- ?1 seq, ?2 moved, ?3 state, ?4 revision, ?5 now, ?6 finished, ?7 lease until, ?8 result,
-- ?9 revision before, ?10 token
UPDATE job SET
    state = ?3,
    moved = ?2,
    revision = ?4,
    updated_at = ?5,
    finished_at = nullif(?6, -1),
    lease_until = nullif(?7, -1),
    failed_at = NULL,
    category = '',
    code = '',
    failure = NULL,
    result = nullif(?8, '')
WHERE seq = ?1 AND revision = ?9 AND token = ?10
