"""Replaying recorded sessions under other context policies, without any network."""
