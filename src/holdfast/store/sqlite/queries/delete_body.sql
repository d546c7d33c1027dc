-- delete_body: delete what never changed of a job. ?1 seq
DELETE FROM body WHERE seq = ?1
