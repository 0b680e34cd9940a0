-- The platform itself asked to send this later: a new connection does not end that pause.
ALTER TABLE outbox ADD COLUMN rate_limited @int NOT NULL DEFAULT 0;
