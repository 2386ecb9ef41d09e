"""What users are told: signatures of what is made from tables, and errors for what is not there."""
