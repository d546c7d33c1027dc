LOCK TABLE {schema}.tie IN ACCESS EXCLUSIVE MODE;
DO $$ BEGIN
    IF EXISTS (SELECT FROM {schema}.tie) THEN
        RAISE EXCEPTION 'some jobs are not joined to their dependencies yet:'
            ' let a worker of this version run for a moment';
    END IF;
END $$;
DROP TABLE {schema}.tie;
