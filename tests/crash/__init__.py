"""Real processes, real sockets, real kills: what must hold after each of them (reliability 4a)."""
