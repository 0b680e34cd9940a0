"""Archives: sessions as files. JSONL comes back exactly as it went; Markdown and HTML are for reading."""
