-- When the provider that failed a turn takes requests again, so that clients learn how long to wait.
ALTER TABLE turns ADD COLUMN retry_at @int;
