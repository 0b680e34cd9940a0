"""Read models: traces, lists, progress, invariants."""
