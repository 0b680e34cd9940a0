"""Mattermost: a bot account on a server of yours."""
