"""Help for users: signatures of methods that are made from tables, and errors for unknown names."""
