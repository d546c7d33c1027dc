-- touch_settings: let other processes see that settings changed.
UPDATE settings SET version = version + 1
