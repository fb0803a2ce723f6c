"""Random input: nothing but the errors made for people may come out."""
