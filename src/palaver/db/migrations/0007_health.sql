-- How each account is doing: known to every gateway, and to whoever asks when none runs.
ALTER TABLE accounts ADD COLUMN connected_since @int;
ALTER TABLE accounts ADD COLUMN last_error TEXT;
ALTER TABLE accounts ADD COLUMN failed_at @int;
