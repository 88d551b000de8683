"""A result as one HTML file, that opens from disk and can be mailed: what it shows, its figures, its page."""
