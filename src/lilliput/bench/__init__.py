"""`lilliput bench`: what is measured."""
