"""For those who come from another package: its names and behaviour, over echod."""
