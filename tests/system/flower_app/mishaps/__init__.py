"""Clients that misbehave on demand, and the arithmetic of those that do not."""
