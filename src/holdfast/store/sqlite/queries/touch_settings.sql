-- touch_settings: show other processes that settings changed.
UPDATE settings SET version = version + 1
