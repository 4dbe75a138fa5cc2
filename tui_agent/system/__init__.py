"""What the program asks of the machine: durable files, files of its own, other programs, certificates."""
