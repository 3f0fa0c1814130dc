"""The only place with sqlite3 and SQL: the file, the writer, the rows, the reads."""
