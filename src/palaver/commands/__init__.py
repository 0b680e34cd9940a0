"""What people can say to the gateway itself, in any chat: one registry, one small file per group of commands."""
