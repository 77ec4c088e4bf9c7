"""What runs beyond the wall: keeper, zygote and members. Standard library only; sent to the interpreter as text."""
