"""Tables and the self-contained page, made from run folders and from nothing else."""
