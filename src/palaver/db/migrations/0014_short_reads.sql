-- Nothing of a session is shown before this seq: what was summarised long ago is not read again for every turn.
ALTER TABLE sessions ADD COLUMN shown_from @int NOT NULL DEFAULT 0;
UPDATE sessions SET shown_from = coalesce((SELECT e.id FROM entries e
    WHERE e.id >= sessions.no * 16777216 AND e.id < (sessions.no + 1) * 16777216 AND e.hidden_by IS NULL
    ORDER BY e.id LIMIT 1) - no * 16777216, next_seq)
  WHERE no IN (SELECT session_no FROM operations WHERE kind IN ('undo', 'compaction', 'revision'));
-- Of those that are hidden only, so that what is said costs nothing more.
CREATE INDEX entries_hidden ON entries (turn_no) WHERE hidden_by IS NOT NULL;

-- Whoever sends looks at what is due in the accounts they serve, and at no other.
DROP INDEX outbox_due;
CREATE INDEX outbox_due ON outbox (account, due) WHERE state = 'due';
