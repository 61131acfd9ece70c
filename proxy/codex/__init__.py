"""What connects Codex: its configuration, and how far its running clients have taken that up."""
