-- limited: whether a job that stops running may make room for others.
SELECT EXISTS (SELECT 1 FROM rule WHERE concurrency IS NOT NULL)
