"""Who is connected and what they can do."""
