-- A chat id is only unique within its server, so a chat moves on one server.
ALTER TABLE chat_moves RENAME TO old_chat_moves;
CREATE TABLE chat_moves (
  account TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL,
  new_chat TEXT NOT NULL,
  since @int NOT NULL,
  PRIMARY KEY (account, chat, server),
  CHECK (chat <> new_chat)
) @strict;
INSERT INTO chat_moves (account, chat, new_chat, since) SELECT account, chat, new_chat, since FROM old_chat_moves;
DROP TABLE old_chat_moves;

-- Who attached a chat: the operation that says so goes with its session.
ALTER TABLE attached_chats ADD COLUMN actor TEXT NOT NULL DEFAULT '';
UPDATE attached_chats SET actor = coalesce((SELECT o.actor FROM operations o WHERE o.no = attached_chats.operation), '');

-- Whether a turn ended with an answer: only those count as turns. Those that ended before count as they did.
ALTER TABLE turns ADD COLUMN answered @int NOT NULL DEFAULT 0;
UPDATE turns SET answered = 1 WHERE state IN ('done', 'failed');

-- What the title of a conversation used, which was found after a turn: not part of what its answer used.
CREATE TABLE title_usage (
  turn_no @int PRIMARY KEY,
  at @int NOT NULL,
  model TEXT,
  input_tokens @int NOT NULL,
  output_tokens @int NOT NULL,
  cached_tokens @int NOT NULL,
  cost_micros @int NOT NULL,
  unpriced_tokens @int NOT NULL
) @strict;
