b.id, b.type, b.queue, CASE WHEN octet_length(b.payload) <= %(most_bytes)s::bigint THEN b.payload ELSE ''::bytea END, b.policy, b.created_at, b.tags, b.correlation_id,
b.callback_url, b.limit_key, b.dedupe, b.depends_on, b.dependency_kind, b.depth, b.spawned_by,
b.extra,
j.state::text AS state, j.revision, j.priority, j.max_attempts, j.attempt, j.generation, j.held,
j.updated_at, j.due_at, j.scheduled_at, j.started_at, j.finished_at, j.expires_at,
j.lease_token, j.lease_version, j.lease_worker, j.lease_until,
j.cancel, j.failure,
CASE WHEN octet_length(j.result) <= %(most_bytes)s::bigint THEN j.result END, j.progress,
CASE WHEN octet_length(j.checkpoint) <= %(most_bytes)s::bigint THEN j.checkpoint END
