LOCK TABLE {schema}.tie IN ACCESS EXCLUSIVE MODE;
DO $$ BEGIN
    IF EXISTS (SELECT FROM {schema}.tie) THEN
        RAISE EXCEPTION 'some jobs are not linked to their dependencies yet:'
            ' run a worker of this version for a moment';
    END IF;
END $$;
DROP TABLE {schema}.tie;
