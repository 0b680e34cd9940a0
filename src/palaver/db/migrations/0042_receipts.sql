-- Find the answer that somebody replies or reacts to, by the id that the platform gave it.
CREATE INDEX outbox_of_receipt ON outbox (chat, receipt) WHERE receipt IS NOT NULL AND id > 0;
