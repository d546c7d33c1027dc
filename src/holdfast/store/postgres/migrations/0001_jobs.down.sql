-- loses: all jobs
DROP TABLE {schema}.hold, {schema}.rate_window, {schema}.rule, {schema}.queue;
DROP TABLE {schema}.toll, {schema}.reading, {schema}.tally, {schema}.delta;
DROP TABLE {schema}.waiting, {schema}.edge, {schema}.dedupe, {schema}.log;
DROP TABLE {schema}.journal, {schema}.job, {schema}.body;
DROP SEQUENCE {schema}.place;
DROP TYPE {schema}.state;
