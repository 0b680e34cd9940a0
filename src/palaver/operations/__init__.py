"""What can be asked of an installation, one file per subject."""
