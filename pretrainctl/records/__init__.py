"""What we write and hand around: frozen dataclasses, JSON both ways. Standard library only."""
