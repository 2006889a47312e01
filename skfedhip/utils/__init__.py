"""Small helpers that know nothing of clients' models."""
