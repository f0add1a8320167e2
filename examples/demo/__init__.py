"""A demo: an agent that answers questions about a folder, and a change that waits for a person's approval."""
