"""Programs that a test starts in the place of the proxy."""
