"""XMPP (Jabber): an account on any server, in direct chats and rooms."""
