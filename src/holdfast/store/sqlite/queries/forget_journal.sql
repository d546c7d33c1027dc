-- forget_journal: delete what no subscriber can ask for any more. ?1 seq, ?2 last number
DELETE FROM journal WHERE seq = ?1 AND number <= ?2
