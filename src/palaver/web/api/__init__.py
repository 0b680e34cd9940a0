"""The API: one module for each part, with a function `routes(desk)`."""
