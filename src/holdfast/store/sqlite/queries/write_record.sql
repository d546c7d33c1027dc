-- write_record: write one record. ?1 kind, ?2 key, ?3 data, ?4 version
INSERT OR REPLACE INTO record (kind, key, data, version) VALUES (?1, ?2, ?3, ?4)
