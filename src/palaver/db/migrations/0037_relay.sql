-- The gateway that a connector hands this message to; its state is 'relay' until that gateway has stored it.
ALTER TABLE inbox ADD COLUMN tenant TEXT;
CREATE INDEX inbox_to_relay ON inbox (tenant, platform, account, no) WHERE state = 'relay';
CREATE INDEX inbox_relayed_chats ON inbox (tenant, chat) WHERE tenant IS NOT NULL;
