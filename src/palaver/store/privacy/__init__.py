"""Export and erase everything stored about a person."""
