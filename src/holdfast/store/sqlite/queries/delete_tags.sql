-- delete_tags: delete a job's tags; its body, which names them, must still exist. ?1 seq
DELETE FROM tag
WHERE seq = ?1 AND (name, value) IN (
    SELECT each.key, each.value
    FROM body, json_each(CAST(body.tags AS TEXT)) AS each
    WHERE body.seq = ?1
)
