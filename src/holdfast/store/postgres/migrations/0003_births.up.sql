-- works with: 1

-- A job that is born and goes on at once is told in one row of the journal instead of two: it comes
-- from nowhere and has the event of its second step. In the stream of events it takes two numbers,
-- its own and the one before, which is why every row now leaves one out.
-- The sequence, and not its column: whoever reads the journal goes on meanwhile.
ALTER SEQUENCE {schema}.journal_seq_seq INCREMENT BY 2;
COMMENT ON COLUMN {schema}.journal.from_state IS
    'null for a birth; if the event is not submit, the job was born and went on at once';
