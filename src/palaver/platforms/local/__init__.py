"""Local files: where the target `local` leads."""
