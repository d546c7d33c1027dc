-- delete_record: delete one record. ?1 kind, ?2 key
DELETE FROM record WHERE kind = ?1 AND key = ?2
