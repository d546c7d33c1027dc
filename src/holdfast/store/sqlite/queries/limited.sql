-- limited: whether there are limits.
SELECT EXISTS (SELECT 1 FROM rule)
