"""Recorded sessions, played again under other rules for the context, without any network."""
