"""What the gateway lets its agent do besides talking."""
