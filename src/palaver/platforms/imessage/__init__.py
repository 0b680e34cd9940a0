"""iMessage, through a BlueBubbles server on a Mac."""
