"""Retention: find and delete what is over its age, count or size, class by class."""
