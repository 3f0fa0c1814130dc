"""The document and the tree: from JSON text to what runs next. Pure."""
