-- add_tag: index a job by a tag. ?1 name, ?2 value, ?3 seq
INSERT INTO tag (name, value, seq) VALUES (?1, ?2, ?3)
