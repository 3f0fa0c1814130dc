"""The engine: from a due row to a committed step. Built-in handlers and faces are not known here."""
