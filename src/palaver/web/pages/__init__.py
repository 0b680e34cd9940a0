"""The dashboard's pages: one module per subject, each with `routes(services)`."""
