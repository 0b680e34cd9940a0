-- Tables and columns get the names that the code uses.
ALTER TABLE lines RENAME TO ready_queue;
ALTER TABLE ready_queue RENAME COLUMN place TO position;
DROP INDEX lines_in_order;
CREATE INDEX ready_queue_in_order ON ready_queue (position, key);
ALTER TABLE homes RENAME TO home_channels;
ALTER TABLE moved_chats RENAME TO chat_moves;
ALTER TABLE chat_moves RENAME COLUMN now_at TO new_chat;
ALTER TABLE used RENAME TO usage;
DROP INDEX used_by_slot;
CREATE INDEX usage_by_slot ON usage (slot);
ALTER TABLE web_keys RENAME TO api_tokens;
ALTER TABLE attached RENAME TO attached_chats;
ALTER TABLE erased RENAME TO erased_digests;
ALTER TABLE offers RENAME TO link_offers;
ALTER TABLE link_offers RENAME COLUMN stated TO stated_accounts;
ALTER TABLE link_offers RENAME COLUMN agreed TO agreed_by;
ALTER TABLE identities RENAME COLUMN born TO original_person;
ALTER TABLE turns RENAME COLUMN asked TO pending_call;
ALTER TABLE pairings RENAME COLUMN asked TO requested;
ALTER TABLE erasures RENAME COLUMN asked TO requested;
ALTER TABLE erasures RENAME COLUMN who TO subject;
ALTER TABLE operations RENAME COLUMN by_whom TO actor;
ALTER TABLE grants RENAME COLUMN by_whom TO actor;
ALTER TABLE home_channels RENAME COLUMN by_whom TO actor;
ALTER TABLE links RENAME COLUMN by_whom TO actor;
ALTER TABLE access_log RENAME COLUMN by_whom TO actor;
ALTER TABLE erasures RENAME COLUMN by_whom TO actor;

-- What identifies a message: columns instead of one text, and all that distinguishes two chats is among them.
-- An edit has a version, and a message that /retry sends once more the session that it made.
CREATE TABLE received (
  no @serial,
  platform TEXT NOT NULL DEFAULT '',
  account TEXT NOT NULL DEFAULT '',
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL DEFAULT '',
  alt_chat TEXT NOT NULL DEFAULT '',
  chat_user TEXT NOT NULL DEFAULT '',
  message_id TEXT,
  version TEXT NOT NULL DEFAULT '',
  retried_in @int NOT NULL DEFAULT 0,
  key TEXT NOT NULL,
  place TEXT,
  state TEXT NOT NULL,
  received @int NOT NULL,
  identity TEXT,
  turn_no @int,
  reason TEXT,
  body @blob NOT NULL,
  CHECK ((state = 'in-turn') <= (turn_no IS NOT NULL))
) @strict;
@convert inbox_addresses;
DROP TABLE inbox;
ALTER TABLE received RENAME TO inbox;
/*pg SELECT setval(pg_get_serial_sequence('inbox', 'no'), max(no)) FROM inbox */;
CREATE UNIQUE INDEX inbox_received_once
  ON inbox (message_id, chat, alt_chat, chat_user, server, platform, account, version, retried_in);
CREATE INDEX inbox_waiting ON inbox (key, no) WHERE state = 'waiting';
CREATE INDEX inbox_of_turn ON inbox (turn_no) WHERE turn_no IS NOT NULL;
CREATE INDEX inbox_of_sender ON inbox (identity, no);
-- Not platform = 'web': SQLite would then plan every statement that says platform = ? anew whenever it is used.
CREATE INDEX inbox_of_web ON inbox (coalesce(place, key), no) WHERE substr(platform, 1, 4) = 'web';

-- The server is part of where a message goes.
ALTER TABLE outbox ADD COLUMN server TEXT NOT NULL DEFAULT '';
DROP INDEX outbox_in_order;
CREATE INDEX outbox_in_order ON outbox (account, chat, server, created, id) WHERE state IN ('due', 'claimed');
ALTER TABLE gone_chats RENAME TO old_gone_chats;
CREATE TABLE gone_chats (
  account TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL,
  since @int NOT NULL,
  error TEXT NOT NULL,
  PRIMARY KEY (account, chat, server)
) @strict;
INSERT INTO gone_chats (account, chat, since, error) SELECT account, chat, since, error FROM old_gone_chats;
DROP TABLE old_gone_chats;

DROP INDEX processes_live;
CREATE INDEX processes_by_session ON processes (session_no);
