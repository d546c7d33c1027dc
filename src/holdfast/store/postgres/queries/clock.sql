-- clock: the server's time
SELECT clock_timestamp()
