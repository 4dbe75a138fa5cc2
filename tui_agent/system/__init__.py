"""What the program asks of the operating system: durable files, folders of its own, other programs, certificates."""
