"""The Responses wire format, pure: JSON, events, frames, SSE, transcripts, headers."""
