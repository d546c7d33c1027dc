-- delete_checkpoint: delete a job's checkpoint. ?1 seq
DELETE FROM checkpoint WHERE seq = ?1
