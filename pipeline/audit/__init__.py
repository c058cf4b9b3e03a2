"""Stage 4: instances measured against the configuration they were built with."""
