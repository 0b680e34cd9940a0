-- What opens the window: codes of login links, logins, and tokens of programs. A secret is there as a digest only.
CREATE TABLE web_keys (
  no @counter,
  digest TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  -- On whose behalf it opens; nobody's name for the owner's.
  identity TEXT,
  rights TEXT NOT NULL,
  created @int NOT NULL,
  expires @int,
  last_used @int NOT NULL
) @strict;

-- The web chat keeps no messages of its own: what was said there and what was sent there is the chat.
CREATE INDEX inbox_of_web ON inbox (coalesce(place, key), no) WHERE substr(dedup, 1, 5) = 'web::';
-- Not account = 'web:': SQLite would then plan every statement that says account = ? anew whenever it is used.
CREATE INDEX outbox_of_web ON outbox (chat, created, id) WHERE substr(account, 1, 5) = 'web:' AND state = 'delivered';
