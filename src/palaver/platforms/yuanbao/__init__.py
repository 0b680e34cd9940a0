"""Yuanbao: a bot of Tencent's assistant app, over its WebSocket."""
