-- Chats that have another id by now. What is owed to the old one goes to the new one; it leads to no other old one.
CREATE TABLE moved_chats (
  account TEXT NOT NULL,
  chat TEXT NOT NULL,
  now_at TEXT NOT NULL,
  since @int NOT NULL,
  PRIMARY KEY (account, chat),
  CHECK (chat <> now_at)
) @strict;

-- The platform does not take us there, and somebody has to do something about it.
ALTER TABLE accounts ADD COLUMN refused @int NOT NULL DEFAULT 0;
