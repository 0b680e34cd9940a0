"""Home Assistant: events of its automations and apps in, notifications out."""
