"""The ledger against a model of a page, by Hypothesis."""
