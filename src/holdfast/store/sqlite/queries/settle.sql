-- settle: write a decided job that ends with nothing but its result.
-- ?1 seq, ?2 moved, ?3 state, ?4 revision, ?5 now, ?6 finished, ?7 lease until, ?8 result
UPDATE job SET
    state = ?3,
    moved = ?2,
    revision = ?4,
    updated_at = ?5,
    finished_at = ?6,
    lease_until = ?7,
    failed_at = NULL,
    category = NULL,
    code = NULL,
    failure = NULL,
    result = ?8
WHERE seq = ?1
