-- large_results: the sizes of large results. ?1 seqs as a JSON array, ?2 bytes that are not large
SELECT id, length(result) FROM job
WHERE seq IN (SELECT value FROM json_each(?1)) AND length(result) > ?2
