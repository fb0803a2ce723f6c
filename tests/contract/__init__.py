"""The suite that every registered method and part must pass."""
