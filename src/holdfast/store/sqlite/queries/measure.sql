-- measure: add to one bucket of one measure in one minute.
-- ?1 minute, ?2 queue, ?3 type, ?4 priority, ?5 measure, ?6 bucket, ?7 count, ?8 largest seconds
INSERT INTO minute (minute, queue, type, priority, measure, bucket, count, top)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (minute, queue, type, priority, measure, bucket)
DO UPDATE SET count = count + excluded.count, top = max(top, excluded.top)
