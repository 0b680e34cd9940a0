"""ntfy: topics on ntfy.sh or a server of yours."""
