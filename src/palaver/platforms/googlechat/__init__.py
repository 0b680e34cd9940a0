"""Google Chat: an HTTP app of a Google Cloud project."""
