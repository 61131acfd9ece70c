"""`python -m proxy` is the `turnlane` command."""

from proxy.cli import main

if __name__ == "__main__":
    main()
