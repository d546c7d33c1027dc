-- The jobs of a queue in the order of submission; a list of a queue with few jobs read all others.
CREATE INDEX job_queue ON job (queue, seq);
