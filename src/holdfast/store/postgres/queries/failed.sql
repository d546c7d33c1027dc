j.failed_at IS NOT NULL
  AND j.state = ANY (%(states)s::text[]::{schema}.state[])
  AND (%(categories)s::text[] IS NULL OR j.failure_category = ANY (%(categories)s::text[]))
  AND (%(types)s::text[] IS NULL OR j.type = ANY (%(types)s::text[]))
  AND (%(queues)s::text[] IS NULL OR j.queue = ANY (%(queues)s::text[]))
  AND j.queue >= %(low)s::text AND j.queue < %(high)s::text
  AND (NOT %(plain)s::boolean OR strpos(j.queue, '/') = 0)
  AND (%(code)s::text IS NULL OR j.failure_code = %(code)s::text)
  AND (%(after)s::timestamptz IS NULL OR j.failed_at >= %(after)s::timestamptz)
  AND (%(before)s::timestamptz IS NULL OR j.failed_at < %(before)s::timestamptz)
