"""What measured runs teach: fitting the ranker, and judging it on shapes it never saw."""
