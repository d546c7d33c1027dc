-- checkpoint: write a checkpoint. ?1 seq, ?2 data
INSERT INTO checkpoint (seq, data) VALUES (?1, ?2)
ON CONFLICT (seq) DO UPDATE SET data = excluded.data
