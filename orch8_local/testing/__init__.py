"""What tests need and users need too: a simulated world, a scripted provider, the invariants."""
