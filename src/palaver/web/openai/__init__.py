"""Chat completions as OpenAI has them, bound to conversations of ours."""
