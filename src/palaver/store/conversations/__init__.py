"""Sessions, transcripts, the undo log and attachments."""
