"""LINE: an official account with the Messaging API."""
