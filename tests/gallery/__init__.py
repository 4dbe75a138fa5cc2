"""Every state of the screen as a picture: driven in the real app, kept in `snapshots/`, shown by `make gallery`."""
