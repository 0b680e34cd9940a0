"""Values and rules: pure, without I/O, clock or logging."""
