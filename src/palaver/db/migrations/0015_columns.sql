-- Why a message that is no reply of a turn is sent: columns instead of one text. NULL for replies, whose id says it.
ALTER TABLE outbox ADD COLUMN cause_kind TEXT;
ALTER TABLE outbox ADD COLUMN cause_id TEXT;
ALTER TABLE outbox ADD COLUMN cause_detail TEXT;
ALTER TABLE outbox ADD COLUMN part @int;
-- Causes whose text is wiped once it was sent, because it holds a code.
CREATE TABLE wiped_after_send (
  cause_kind TEXT NOT NULL,
  cause_id TEXT NOT NULL,
  PRIMARY KEY (cause_kind, cause_id)
) @strict @clustered;
@convert outbox_causes;
DROP TABLE said_once;
DROP INDEX outbox_owed_once;
ALTER TABLE outbox DROP COLUMN dedup;
CREATE UNIQUE INDEX outbox_sent_once ON outbox (cause_kind, cause_id, cause_detail, part) WHERE cause_kind IS NOT NULL;

-- Who sent a message, and for a message that /retry sends once more, the session that it made.
ALTER TABLE inbox ADD COLUMN identity TEXT;
ALTER TABLE inbox ADD COLUMN retried_in @int;
@convert inbox_columns;

-- Who asked a turn to stop and when, and the quota that a failed turn was over.
ALTER TABLE turns ADD COLUMN stopped_by TEXT;
ALTER TABLE turns ADD COLUMN stopped_at @int;
ALTER TABLE turns ADD COLUMN quota TEXT;
@convert turn_columns;
ALTER TABLE turns DROP COLUMN stop;

-- Where an operation led from and to: the session before it, the key its session had, and the key it has since.
ALTER TABLE operations ADD COLUMN from_session TEXT;
ALTER TABLE operations ADD COLUMN from_key TEXT;
ALTER TABLE operations ADD COLUMN to_key TEXT;
@convert operation_columns;
