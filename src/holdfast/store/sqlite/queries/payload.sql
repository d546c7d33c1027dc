-- payload: replace the payload of a job. ?1 seq, ?2 payload
UPDATE body SET payload = ?2 WHERE seq = ?1
