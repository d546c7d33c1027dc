-- set_kind: change how a job waits. ?1 seq, ?2 kind
UPDATE body SET kind = ?2 WHERE seq = ?1
