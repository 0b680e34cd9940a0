"""What can be seen of a gateway at work: its log and its figures, without content."""
