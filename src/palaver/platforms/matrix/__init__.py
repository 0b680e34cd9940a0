"""Matrix: one account of ours on a homeserver, spoken to with matrix-nio."""
