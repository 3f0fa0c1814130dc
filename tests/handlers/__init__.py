"""Handlers, the way out of the process, and the scripted provider."""
