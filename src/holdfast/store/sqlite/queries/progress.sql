-- progress: write the progress of a job. ?1 seq, ?2 progress
UPDATE job SET progress = ?2 WHERE seq = ?1
