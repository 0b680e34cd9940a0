"""Matrix, through matrix-nio."""
