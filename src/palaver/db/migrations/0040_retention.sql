-- Overheard entries in the order of their turns: retention deletes the oldest first.
CREATE INDEX entries_observed ON entries (turn_no, id) WHERE observed = 1;

-- Rows of `inbox` and `outbox` that retention has passed before they were settled. It looks at them again.
CREATE TABLE retention_skipped (
  source TEXT NOT NULL,
  number @int NOT NULL,
  PRIMARY KEY (source, number)
) @strict @clustered;
