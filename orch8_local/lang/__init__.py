"""The two small languages of a sequence document: templates and expressions (sequence-format 7, 8)."""
