"""Durable facts: ports and their backends."""
