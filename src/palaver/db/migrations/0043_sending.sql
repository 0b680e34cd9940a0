-- A claimed send waits for its turn; only while it is `sending` a request can have left. Until now both were one.
UPDATE outbox SET state = 'sending' WHERE state = 'claimed';
DROP INDEX outbox_in_order;
CREATE INDEX outbox_in_order ON outbox (account, chat, server, created, id)
  WHERE state IN ('due', 'claimed', 'sending');
-- How often nobody knew whether it had arrived: from the first time on it is marked as a possible duplicate.
ALTER TABLE outbox RENAME COLUMN may_be_duplicate TO times_unclear;
-- Whether the first request for the draft of a growing answer has left, and its receipt is not known.
ALTER TABLE turns ADD COLUMN draft_unclear @int NOT NULL DEFAULT 0;
