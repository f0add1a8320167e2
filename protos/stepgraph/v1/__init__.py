"""Version 1 of the schema, generated from the .proto files beside this module."""
