"""The one loop around the core."""
