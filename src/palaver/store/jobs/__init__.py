"""Jobs and their firings."""
