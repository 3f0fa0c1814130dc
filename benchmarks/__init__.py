"""Speed and its price, measured by hand: `python -m benchmarks`. Never asserted in a test."""
