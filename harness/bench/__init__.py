"""The cost of a turn: CPU of a proxy's whole process tree, beside a floor and its peers."""
