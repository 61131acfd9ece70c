"""The wire as clients and model services speak it: shared by the harness and by the tests."""
