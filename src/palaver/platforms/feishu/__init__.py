"""Feishu and Lark: an app with a bot, its event callbacks and its messages API."""
