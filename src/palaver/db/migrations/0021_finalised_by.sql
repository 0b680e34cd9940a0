-- The hooks that were told of the end of a session. They are not told again.
ALTER TABLE sessions ADD COLUMN finalised_by TEXT;
