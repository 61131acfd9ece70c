"""Commands to a running turnlane: the socket, the client, and what each command does."""
