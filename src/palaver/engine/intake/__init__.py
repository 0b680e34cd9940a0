"""Intake: receive a message, admit it, derive its key, accept it into the inbox."""
