"""Ends with a complaint before it is ready."""

import sys

if __name__ == "__main__":
    sys.stdout.write("ready, or not\n")
    sys.exit("no such key: server.prot")
