-- fence: what a change is checked against. ?1 id
SELECT seq, revision, token, lease_until, moved FROM job WHERE id = ?1
