"""Who is let in at the window, and what every request has to show."""
