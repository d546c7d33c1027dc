-- amend_body: write a job's new tags, correlation id and options. NULL is bound as an empty text
-- ?1 seq, ?2 correlation, ?3 tags, ?4 options
UPDATE body SET correlation = nullif(?2, ''), tags = nullif(?3, ''), options = ?4 WHERE seq = ?1
