"""The recall harness: many simulated agents against one proxy, judged by what the wire shows."""
