"""What a reader sees of an answer: tables and pictures."""
