-- delete_body: delete the unchanging part of a job. ?1 seq
DELETE FROM body WHERE seq = ?1
