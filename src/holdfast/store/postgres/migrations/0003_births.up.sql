-- works with: 1

-- A job that is submitted and changes its state at once has one row in the journal instead of two:
-- without a previous state, and with the event of its second transition. In the event stream it
-- takes two numbers, its own and the one before, so every row now skips one.
-- Alters the sequence, and not its column, which would lock out readers of the journal.
ALTER SEQUENCE {schema}.journal_seq_seq INCREMENT BY 2;
COMMENT ON COLUMN {schema}.journal.from_state IS
    'null for a birth; if the event is not submit, the job was born and went on at once';
