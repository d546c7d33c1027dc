-- loses: API keys, webhooks and the audit of calls
DROP TABLE {schema}.record;
