"""turnlane as a service of its user: systemd units and a launchd plist."""
