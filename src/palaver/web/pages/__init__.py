"""Pages: one module each, with a function `routes(desk)`."""
