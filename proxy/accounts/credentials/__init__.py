"""Credentials of accounts: API keys, ChatGPT logins, and where their secrets are kept."""
