"""Reads sessions recorded by this program or others, and imports them as sessions of ours."""
