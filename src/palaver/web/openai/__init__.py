"""An OpenAI-compatible endpoint: chat completions bound to our conversations."""
