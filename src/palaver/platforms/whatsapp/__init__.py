"""WhatsApp: the Cloud API of Meta for numbers of a business, and a bridge for personal numbers."""
