"""The configuration: settings with their defaults, and reading them from TOML."""
