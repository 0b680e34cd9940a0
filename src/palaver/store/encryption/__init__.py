"""Encryption at rest: keys, sealed contents, and the change from a plain store to an encrypted one."""
