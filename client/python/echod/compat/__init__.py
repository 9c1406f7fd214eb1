"""Other packages' names and behaviour, over this one."""
