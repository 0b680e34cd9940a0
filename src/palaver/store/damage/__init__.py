"""Find what is damaged in a store, and mend it or set it aside."""
