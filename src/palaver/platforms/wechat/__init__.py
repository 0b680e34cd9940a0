"""WeChat official accounts, and WeCom apps: their callbacks and messages are alike."""
