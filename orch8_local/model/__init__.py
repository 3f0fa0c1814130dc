"""Facts and rules without input or output: ids, states, receipts, outcomes, records. Pure."""
