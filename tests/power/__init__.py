"""Power loss by replay: what a run wrote is cut at every operation and opened again (reliability 4c)."""
