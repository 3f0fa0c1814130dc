"""What a step can call: the registry, the guarded network, and the built-in handlers."""
