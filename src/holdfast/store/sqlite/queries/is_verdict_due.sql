-- is_verdict_due: whether a verdict on a waiting job may be due. ?1 seq
SELECT ripe FROM job WHERE seq = ?1
