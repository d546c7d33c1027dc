-- The jobs of a namespace in order of submission, and those that failed. Jobs without a namespace
-- cost nothing here.
CREATE INDEX job_namespace ON job (substr(queue, 1, instr(queue, '/')), seq)
    WHERE instr(queue, '/') > 0;
CREATE INDEX job_namespace_failed ON job (
    substr(queue, 1, instr(queue, '/')), failed_at, seq, state, category, code, type, queue
) WHERE instr(queue, '/') > 0 AND failed_at IS NOT NULL;
