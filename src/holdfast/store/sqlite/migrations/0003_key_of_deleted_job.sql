-- A key outlives its job: the id of a deleted job, by which its key answers until its window ends.
ALTER TABLE key ADD COLUMN gone ANY;
