"""`python -m proxy` is the `turnlane` command."""

from proxy.cli.main import main

if __name__ == "__main__":
    main()
