"""Code of the reaper, the zygote and the boxes. Standard library only, as the interpreter gets it as text."""
