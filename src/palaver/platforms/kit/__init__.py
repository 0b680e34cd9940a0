"""The test kit: a chat platform in memory that can go wrong in every way, and the suite every adapter passes."""
