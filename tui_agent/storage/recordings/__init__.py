"""Sessions that were recorded, by this program and by others: read whole, made valid, and taken over."""
