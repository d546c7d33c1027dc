-- limited: whether any limit is set.
SELECT EXISTS (SELECT 1 FROM rule)
