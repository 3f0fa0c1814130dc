"""The command line: parsing, asking, showing. No logic of runs or effects lives here."""
