"""The `turnlane` command."""
