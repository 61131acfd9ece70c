"""The tools that load turnlane from outside: recall, simulate and bench."""
