"""Background processes: their supervisors, their output and notices, and the back ends they run in."""
